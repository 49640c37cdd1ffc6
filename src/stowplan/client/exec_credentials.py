"""Exec credential plugins: which program to run, and how to read its output.

Source: client-go v1.36, plugin/pkg/client/auth/exec; client.authentication.k8s.io/v1 and v1beta1.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import ClassVar

import msgspec

from stowplan.client.responses import excerpt

EXEC_INFO = "KUBERNETES_EXEC_INFO"
"""Environment variable that carries the ExecCredential request to the plugin."""


class ExecSpec(msgspec.Struct, frozen=True):
    """An exec plugin. env: added to the environment. hint: shown to users who lack the program.
    provides_cluster_info: pass it the cluster. is_interactive: it needs a terminal."""

    VERSIONS: ClassVar[tuple[str, ...]] = (
        "client.authentication.k8s.io/v1",
        "client.authentication.k8s.io/v1beta1",
    )

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    hint: str = ""
    provides_cluster_info: bool = False
    is_interactive: bool = False


class ExecCredential(msgspec.Struct, frozen=True):
    """Credential that a plugin returns. until: expiry, None if it does not expire. certificate,
    key: PEM, "" for none."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    until: datetime | None = None


class _ExecCredentialStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredentialObject(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""
    status: _ExecCredentialStatus | None = None


def exec_info(
    spec: ExecSpec, server: str, ca: bytes, server_name: str = "", *, is_insecure: bool = False
) -> str:
    """Value of EXEC_INFO."""
    spec_tree: dict[str, object] = {"interactive": spec.is_interactive}
    if spec.provides_cluster_info:
        cluster: dict[str, object] = {"server": server}
        if server_name:
            cluster["tls-server-name"] = server_name
        if is_insecure:
            cluster["insecure-skip-tls-verify"] = True
        if ca:
            cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
        spec_tree["cluster"] = cluster
    tree = {"kind": "ExecCredential", "apiVersion": spec.api_version, "spec": spec_tree}
    return msgspec.json.encode(tree).decode()


def parse_exec_credential(spec: ExecSpec, output: bytes) -> ExecCredential:
    """Parse the output of the plugin; raises ValueError."""
    try:
        found = msgspec.json.decode(output, type=_ExecCredentialObject)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        what = f"{excerpt(output, 80)}: expected an ExecCredential: {problem}"
        raise ValueError(f"invalid output: {what}") from None
    if found.kind != "ExecCredential" or found.api_version != spec.api_version:
        got = f"{found.kind or 'no kind'}, {found.api_version or 'no apiVersion'}"
        raise ValueError(f"invalid output: {got}: expected ExecCredential, {spec.api_version}")
    status = found.status
    if status is None or not (status.token or status.client_certificate_data):
        raise _invalid("status: Required value: token or clientCertificateData")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise _invalid("clientCertificateData and clientKeyData must be set together")
    until = status.expiration_timestamp
    if until is not None and until.tzinfo is None:
        raise _invalid(f"expirationTimestamp: Invalid value: {until}: expected a time zone")
    return ExecCredential(
        status.token, status.client_certificate_data, status.client_key_data, until
    )


def _invalid(problem: str) -> ValueError:
    return ValueError(f"invalid ExecCredential: {problem}")
