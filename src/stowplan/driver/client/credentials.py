"""Credentials of a connection: TLS trust and authentication, renewed as needed.

Token files are read again every minute, exec plugins run again when their credential expires, and
both after a 401.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from stowplan.client.exec_credentials import (
    EXEC_INFO,
    ExecCredential,
    ExecSpec,
    exec_info,
    parse_exec_credential,
)
from stowplan.client.kubeconfig import ClientConfig, DataOrFile
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.loopback import is_loopback
from stowplan.objects.encoding.duration import SECOND

FILE_REREAD_S = 60
EXEC_TIMEOUT_S = 60.0
RENEW_BEFORE_EXPIRY_S = 10
"""A credential that expires this soon counts as expired."""


class CredentialError(ValueError):
    """Credentials or TLS settings cannot be read; the text names the source and the error."""


class Credentials:
    """Credentials of one connection. Used by one event loop."""

    def __init__(self, client_config: ClientConfig) -> None:
        self.client_config = client_config
        self._token = client_config.token
        self._read_at: int | None = None
        self._credential: ExecCredential | None = None
        self._from_provider = ""
        self._lock = asyncio.Lock()
        self.version = 0
        """How many times they were obtained: a request names those that it was sent with."""

    @property
    def is_changing(self) -> bool:
        """True when new credentials may be available after a 401."""
        client_config = self.client_config
        return bool(client_config.token_file or client_config.run or client_config.provider)

    @property
    def certificate(self) -> str:
        """The latest certificate of the exec plugin, "" for none."""
        return "" if self._credential is None else self._credential.certificate

    async def headers(self) -> list[tuple[str, str]]:
        """Authentication headers; raises CredentialError."""
        found = list(self.client_config.headers)
        token = await self._current_token()
        if token:
            found.append(("Authorization", f"Bearer {token}"))
        elif self.client_config.username:
            pair = f"{self.client_config.username}:{self.client_config.password}".encode()
            found.append(("Authorization", f"Basic {base64.b64encode(pair).decode()}"))
        return found

    def forget(self, version: int) -> None:
        """Drop cached credentials that the server has rejected. version: of those that were sent;
        newer ones stay, since a request may be rejected after others have renewed them."""
        if version == self.version:
            self._read_at = None
            self._credential = None

    async def _current_token(self) -> str:
        client_config = self.client_config
        if client_config.token_file:
            return self._token_in_file(client_config.token_file)
        if client_config.run is not None:
            return (await self.credential()).token
        if client_config.provider and not self._token:
            return await self._provided()
        return self._token

    async def _provided(self) -> str:
        """Token of a legacy auth provider, asked again every minute: the provider knows its
        expiry."""
        now = monotonic_ns()
        async with self._lock:
            if self._read_at is None or now - self._read_at >= FILE_REREAD_S * SECOND:
                self._from_provider = await asyncio.to_thread(
                    auth_provider_token, self.client_config
                )
                self._read_at = now
                self.version += 1
            return self._from_provider

    def _token_in_file(self, path: str) -> str:
        now = monotonic_ns()
        if self._read_at is None or now - self._read_at >= FILE_REREAD_S * SECOND:
            try:
                token = Path(path).read_text().strip()
            except OSError as problem:
                if self._token:
                    return self._token
                raise _unreadable(self.client_config.source, "tokenFile", path, problem) from None
            except UnicodeDecodeError:
                raise CredentialError(f"{path}: invalid token: not UTF-8 text") from None
            if token:
                self._token, self._read_at = token, now
                self.version += 1
        return self._token

    async def credential(self) -> ExecCredential:
        """Credential of the exec plugin, run again when it expires; raises CredentialError."""
        async with self._lock:
            if self._credential is None or _is_expired(self._credential):
                spec = self.client_config.run
                assert spec is not None
                self._credential = await self._run(spec)
                self.version += 1
            return self._credential

    async def _run(self, spec: ExecSpec) -> ExecCredential:
        client_config = self.client_config
        info = exec_info(
            spec,
            client_config.server,
            _read_data_or_file(client_config.ca, client_config.source, "certificate-authority"),
            client_config.server_name,
            is_insecure=client_config.is_insecure,
        )
        where = f"{client_config.source}: exec: {spec.command}"
        if spec.is_interactive and not sys.stdin.isatty():
            raise CredentialError(f"{where}: exec plugin needs a terminal, stdin is none")
        output = await _run_exec_plugin(spec, info, where)
        try:
            return parse_exec_credential(spec, output)
        except ValueError as problem:
            raise CredentialError(f"{where}: {problem}") from None

    async def trust(self) -> ssl.SSLContext | None:
        """TLS settings, None for plain HTTP; raises CredentialError."""
        client_config = self.client_config
        if urlsplit(client_config.server).scheme != "https":
            return None
        source = client_config.source
        certificate = _read_data_or_file(client_config.certificate, source, "client-certificate")
        key = _read_data_or_file(client_config.key, source, "client-key")
        if client_config.run is not None:
            credential = await self.credential()
            if credential.certificate:
                certificate, key = credential.certificate.encode(), credential.key.encode()
        ca = _read_data_or_file(client_config.ca, source, "certificate-authority")
        return client_tls_context(
            ca, certificate, key, source, is_insecure=client_config.is_insecure
        )


def auth_provider_token(client_config: ClientConfig) -> str:
    """Token of OIDC or another legacy auth provider, by the official client; raises
    CredentialError."""
    where = f"{client_config.source}: auth-provider {client_config.provider!r}"
    try:
        client: Any = import_module("kubernetes.client")
        config: Any = import_module("kubernetes.config")
    except ImportError:
        what = "needs the extra stowplan[kubernetes]; install it or use an exec plugin"
        raise CredentialError(f"{where}: {what}") from None
    found = client.Configuration()
    try:
        config.load_kube_config(
            os.pathsep.join(client_config.files),
            client_config.context,
            client_configuration=found,
            persist_config=False,
        )
    # The official client and its plugins may raise anything.
    except Exception as problem:  # noqa: BLE001
        raise CredentialError(f"{where}: {problem}") from None
    token = str(found.api_key.get("authorization") or found.api_key.get("BearerToken") or "")
    if not token:
        raise CredentialError(f"{where}: returned no token")
    return token.removeprefix("Bearer ")


async def _run_exec_plugin(spec: ExecSpec, info: str, where: str) -> bytes:
    environment = {**os.environ, **dict(spec.env), EXEC_INFO: info}
    try:
        process = await asyncio.create_subprocess_exec(
            spec.command,
            *spec.args,
            env=environment,
            stdin=None if spec.is_interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
    except OSError as problem:
        hint = f"; {spec.hint}" if spec.hint else ""
        raise CredentialError(f"{where}: {(problem.strerror or '').lower()}{hint}") from None
    try:
        output, _ = await asyncio.wait_for(process.communicate(), EXEC_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise CredentialError(f"{where}: exec plugin timed out after {EXEC_TIMEOUT_S:g}s") from None
    if process.returncode:
        raise CredentialError(f"{where}: exec plugin failed with exit code {process.returncode}")
    return output


def client_tls_context(
    ca: bytes, certificate: bytes, key: bytes, source: str, *, is_insecure: bool = False
) -> ssl.SSLContext:
    """TLS settings of a client. ca: PEM or DER, empty for the system's. Raises CredentialError."""
    try:
        if is_insecure and not ca:
            # Without the system's authorities, which take long to read and are not asked.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        else:
            context = ssl.create_default_context(cadata=_pem(ca) if ca else None)
    except (ssl.SSLError, ValueError) as problem:
        raise CredentialError(f"{source}: certificate authority: {problem}") from None
    # Cluster CAs often lack extensions that Python requires since 3.13 and Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        with _temporary_file(certificate + b"\n" + key) as path:
            try:
                # Without a password OpenSSL would prompt for that of an encrypted key.
                context.load_cert_chain(path, password="")
            except (ssl.SSLError, ValueError) as problem:
                raise CredentialError(f"{source}: client certificate and key: {problem}") from None
    return context


def _pem(data: bytes) -> str | bytes:
    # CA bundles may contain comments, in any encoding.
    return data.decode("ascii", "ignore") if b"-----BEGIN CERTIFICATE" in data else data


@contextlib.contextmanager
def _temporary_file(content: bytes) -> Iterator[str]:
    """A temporary file with this content that only the owner can read."""
    handle, path = tempfile.mkstemp(prefix="stowplan-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        yield path
    finally:
        Path(path).unlink()


def _read_data_or_file(blob: DataOrFile, source: str, what: str) -> bytes:
    return (
        blob.data if blob.data or not blob.file else read_credential_file(blob.file, source, what)
    )


def read_credential_file(file: str, source: str, what: str) -> bytes:
    """Content of a file; raises CredentialError."""
    try:
        return Path(file).read_bytes()
    except OSError as problem:
        raise _unreadable(source, what, file, problem) from None


def _unreadable(source: str, what: str, path: str, problem: OSError) -> CredentialError:
    text = (problem.strerror or str(problem)).lower()
    return CredentialError(f"{source}: {what}: unable to read {path}: {text}")


def _is_expired(credential: ExecCredential) -> bool:
    if credential.until is None:
        return False
    return (credential.until - datetime.now(UTC)).total_seconds() < RENEW_BEFORE_EXPIRY_S


def proxy_of(client_config: ClientConfig) -> str | None:
    """The proxy of a connection, from the kubeconfig or the environment; None for none."""
    if client_config.proxy:
        return client_config.proxy
    parts = urlsplit(client_config.server)
    host = parts.hostname or ""
    if is_loopback(host):
        # As in Go: no proxy for loopback addresses.
        return None
    if proxy_bypass(f"{host}:{parts.port}" if parts.port else host) or proxy_bypass(host):
        return None
    proxies = getproxies()
    if any(
        _matches_no_proxy_entry(entry.strip().lower(), host)
        for entry in proxies.get("no", "").split(",")
    ):
        return None
    proxy = proxies.get(parts.scheme)
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def _matches_no_proxy_entry(entry: str, host: str) -> bool:
    """True for an entry of NO_PROXY that Python's own parser does not know: a network that contains
    the host, or a domain with a wildcard."""
    if entry.startswith("*."):
        return host.endswith(entry[1:])
    if "/" not in entry:
        return False
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        return False
