"""Programs that give credentials: what to run, and what its output means.

Source: client-go v1.36, plugin/pkg/client/auth/exec; client.authentication.k8s.io/v1 and v1beta1.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import ClassVar

import msgspec

EXEC_INFO = "KUBERNETES_EXEC_INFO"
"""The variable in which the program finds what it is asked for."""


class ExecSpec(msgspec.Struct, frozen=True):
    """What to run. env: beside the environment that there is. hint: for users who do not have the
    program. tells_cluster: it is told which cluster it is for. is_interactive: it has to ask."""

    VERSIONS: ClassVar[tuple[str, ...]] = (
        "client.authentication.k8s.io/v1",
        "client.authentication.k8s.io/v1beta1",
    )

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    hint: str = ""
    tells_cluster: bool = False
    is_interactive: bool = False


class ExecCredential(msgspec.Struct, frozen=True):
    """What such a program gives. until: None for as long as the server takes it. certificate, key:
    PEM, "" for none."""

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
    """The value of EXEC_INFO."""
    told: dict[str, object] = {"interactive": spec.is_interactive}
    if spec.tells_cluster:
        cluster: dict[str, object] = {"server": server}
        if server_name:
            cluster["tls-server-name"] = server_name
        if is_insecure:
            cluster["insecure-skip-tls-verify"] = True
        if ca:
            cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
        told["cluster"] = cluster
    tree = {"kind": "ExecCredential", "apiVersion": spec.api_version, "spec": told}
    return msgspec.json.encode(tree).decode()


def parse_exec_credential(spec: ExecSpec, output: bytes) -> ExecCredential:
    """What the program has printed; raises ValueError saying what was got and wanted."""
    try:
        found = msgspec.json.decode(output, type=_ExecCredentialObject)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise ValueError(f"got {_excerpt(output)} ({problem}), wanted an ExecCredential") from None
    if found.kind != "ExecCredential" or found.api_version != spec.api_version:
        got = f"{found.kind or 'no kind'} of {found.api_version or 'no apiVersion'}"
        raise ValueError(f"got {got}, wanted an ExecCredential of {spec.api_version}")
    status = found.status
    if status is None or not (status.token or status.client_certificate_data):
        raise ValueError("got an ExecCredential without token or certificate, wanted either")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ValueError("got a certificate or a key alone, wanted both or none")
    until = status.expiration_timestamp
    if until is not None and until.tzinfo is None:
        raise ValueError(f"got expirationTimestamp {until} without a zone, wanted one")
    return ExecCredential(
        status.token, status.client_certificate_data, status.client_key_data, until
    )


def _excerpt(output: bytes) -> str:
    return repr(output[:80].decode(errors="replace"))
