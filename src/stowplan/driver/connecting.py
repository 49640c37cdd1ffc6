"""Connecting: which kubeconfig files there are, and what they come to."""

from __future__ import annotations

import os
from pathlib import Path

from stowplan.client.kubeconfig import (
    SERVICE_ACCOUNT,
    Connection,
    File,
    connection,
    in_cluster,
)
from stowplan.driver.client_credentials import CredentialError

DEFAULT_FILE = "~/.kube/config"


def connection_to(kubeconfig: str | None = None, context: str = "") -> Connection:
    """How to reach an API server: as a file says, or else as KUBECONFIG, the pod's own environment
    or the file in the home directory do. Raises ConfigError and CredentialError."""
    if kubeconfig:
        return connection([_file(kubeconfig)], context)
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if named:
        # As with kubectl, files that are not there are passed over, unless all are.
        files = [path for path in named if Path(path).exists()] or named
        return connection([_file(path) for path in files], context)
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if host and port and not context and Path(SERVICE_ACCOUNT, "token").exists():
        return in_cluster(host, port, _namespace())
    path = Path(DEFAULT_FILE).expanduser()
    if not path.exists():
        raise CredentialError(
            f"got no cluster, wanted --kubeconfig FILE, KUBECONFIG, {DEFAULT_FILE}, or to run in a "
            "pod"
        )
    return connection([_file(str(path))], context)


def _file(path: str) -> File:
    try:
        text = Path(path).expanduser().read_text()
    except OSError as problem:
        said = (problem.strerror or str(problem)).lower()
        raise CredentialError(f"{path}: got {said}, wanted a kubeconfig") from None
    except UnicodeDecodeError:
        raise CredentialError(f"{path}: got bytes, wanted a kubeconfig as text") from None
    return File(text, path, str(Path(path).expanduser().absolute().parent))


def _namespace() -> str:
    try:
        return Path(SERVICE_ACCOUNT, "namespace").read_text().strip()
    except OSError:
        return ""
