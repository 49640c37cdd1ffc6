"""Loading of kubeconfig files and of the in-cluster configuration."""

from __future__ import annotations

import os
from pathlib import Path

from stowplan.client.kubeconfig import (
    SERVICE_ACCOUNT,
    ClientConfig,
    KubeconfigFile,
    client_config,
    in_cluster_config,
)
from stowplan.driver.client.credentials import CredentialError

DEFAULT_KUBECONFIG = "~/.kube/config"


def load_client_config(kubeconfig: str | None = None, context: str = "") -> ClientConfig:
    """Client configuration from a file, else from KUBECONFIG, the in-cluster environment or
    ~/.kube/config, in this order. Raises ConfigError and CredentialError."""
    if kubeconfig:
        return client_config([_read_kubeconfig(kubeconfig)], context)
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if named:
        # As with kubectl, missing files are ignored unless all are missing.
        files = [path for path in named if Path(path).exists()] or named
        return client_config([_read_kubeconfig(path) for path in files], context)
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if host and port and not context and Path(SERVICE_ACCOUNT, "token").exists():
        return in_cluster_config(host, port, _service_account_namespace())
    path = Path(DEFAULT_KUBECONFIG).expanduser()
    if not path.exists():
        raise CredentialError(
            "no cluster configured: set --kubeconfig FILE or KUBECONFIG, create "
            f"{DEFAULT_KUBECONFIG}, or run in a pod"
        )
    return client_config([_read_kubeconfig(str(path))], context)


def _read_kubeconfig(path: str) -> KubeconfigFile:
    try:
        text = Path(path).expanduser().read_text()
    except OSError as problem:
        what = (problem.strerror or str(problem)).lower()
        raise CredentialError(f"unable to read kubeconfig {path}: {what}") from None
    except UnicodeDecodeError:
        raise CredentialError(f"unable to read kubeconfig {path}: not UTF-8 text") from None
    return KubeconfigFile(text, path, str(Path(path).expanduser().absolute().parent))


def _service_account_namespace() -> str:
    try:
        return Path(SERVICE_ACCOUNT, "namespace").read_text().strip()
    except OSError:
        return ""
