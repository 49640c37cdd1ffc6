"""Credentials: how a connection is trusted, and who asks, brought up to date as time goes on.

Tokens in files are read again every minute, programs are run again when what they gave is over, and
both as soon as the server says 401.
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
from stowplan.objects.encoding.duration import SECOND

FILE_REREAD_S = 60
EXEC_TIMEOUT_S = 60.0
RENEW_BEFORE_EXPIRY_S = 10
"""What is over so soon is taken for over."""


class CredentialError(ValueError):
    """Who asks, or how the server is trusted, cannot be found out: says where, got and wanted."""


class Credentials:
    """Of one connection. Used by one event loop."""

    def __init__(self, client_config: ClientConfig) -> None:
        self.client_config = client_config
        self._token = client_config.token
        self._read_at: int | None = None
        self._given: ExecCredential | None = None
        self._from_provider = ""
        self._lock = asyncio.Lock()

    @property
    def is_changing(self) -> bool:
        """True where a refusal may be mended by asking again."""
        client_config = self.client_config
        return bool(client_config.token_file or client_config.run or client_config.provider)

    @property
    def certificate(self) -> str:
        """The one that a program gave last, "" for none."""
        return "" if self._given is None else self._given.certificate

    async def headers(self) -> list[tuple[str, str]]:
        """The headers that say who asks; raises CredentialError."""
        found = list(self.client_config.headers)
        token = await self._current_token()
        if token:
            found.append(("Authorization", f"Bearer {token}"))
        elif self.client_config.username:
            pair = f"{self.client_config.username}:{self.client_config.password}".encode()
            found.append(("Authorization", f"Basic {base64.b64encode(pair).decode()}"))
        return found

    def forget(self) -> None:
        """The server did not take them: read, or run, anew."""
        self._read_at = None
        self._given = None

    async def _current_token(self) -> str:
        client_config = self.client_config
        if client_config.token_file:
            return self._token_in_file(client_config.token_file)
        if client_config.run is not None:
            return (await self.given()).token
        if client_config.provider and not self._token:
            return await self._provided()
        return self._token

    async def _provided(self) -> str:
        """What a provider of old gives, asked again every minute: it knows when that is over."""
        now = monotonic_ns()
        async with self._lock:
            if self._read_at is None or now - self._read_at >= FILE_REREAD_S * SECOND:
                self._from_provider = await asyncio.to_thread(
                    auth_provider_token, self.client_config
                )
                self._read_at = now
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
                raise CredentialError(f"{path}: got bytes, wanted a token as text") from None
            if token:
                self._token, self._read_at = token, now
        return self._token

    async def given(self) -> ExecCredential:
        """What the program gives, run again where that is over; raises CredentialError."""
        async with self._lock:
            if self._given is None or _is_expired(self._given):
                spec = self.client_config.run
                assert spec is not None
                self._given = await self._run(spec)
            return self._given

    async def _run(self, spec: ExecSpec) -> ExecCredential:
        client_config = self.client_config
        told = exec_info(
            spec,
            client_config.server,
            _read_data_or_file(client_config.ca, client_config.source, "certificate-authority"),
            client_config.server_name,
            is_insecure=client_config.is_insecure,
        )
        where = f"{client_config.source}: exec: {spec.command}"
        if spec.is_interactive and not sys.stdin.isatty():
            raise CredentialError(f"{where}: got a program that has to ask, wanted a terminal")
        output = await _run_exec_plugin(spec, told, where)
        try:
            return parse_exec_credential(spec, output)
        except ValueError as problem:
            raise CredentialError(f"{where}: {problem}") from None

    async def trust(self) -> ssl.SSLContext | None:
        """How TLS is spoken, None where the address has none; raises CredentialError."""
        client_config = self.client_config
        if urlsplit(client_config.server).scheme != "https":
            return None
        source = client_config.source
        certificate = _read_data_or_file(client_config.certificate, source, "client-certificate")
        key = _read_data_or_file(client_config.key, source, "client-key")
        if client_config.run is not None:
            given = await self.given()
            if given.certificate:
                certificate, key = given.certificate.encode(), given.key.encode()
        ca = _read_data_or_file(client_config.ca, source, "certificate-authority")
        return client_tls_context(
            ca, certificate, key, source, is_insecure=client_config.is_insecure
        )


def auth_provider_token(client_config: ClientConfig) -> str:
    """The token that OIDC or another provider of old gives, by the official client; raises
    CredentialError."""
    where = f"{client_config.source}: auth-provider: got {client_config.provider!r}"
    try:
        client: Any = import_module("kubernetes.client")
        config: Any = import_module("kubernetes.config")
    except ImportError:
        wanted = "an exec plugin, or the extra that reads providers (stowplan[kubernetes])"
        raise CredentialError(f"{where}, wanted {wanted}") from None
    found = client.Configuration()
    try:
        config.load_kube_config(
            os.pathsep.join(client_config.files),
            client_config.context,
            client_configuration=found,
            persist_config=False,
        )
    # The official client and what it calls raise whatever they like.
    except Exception as problem:  # noqa: BLE001
        raise CredentialError(f"{where}: {problem}") from None
    token = str(found.api_key.get("authorization") or found.api_key.get("BearerToken") or "")
    if not token:
        raise CredentialError(f"{where} that gives no token, wanted one that does")
    return token.removeprefix("Bearer ")


async def _run_exec_plugin(spec: ExecSpec, told: str, where: str) -> bytes:
    environment = {**os.environ, **dict(spec.env), EXEC_INFO: told}
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
        raise CredentialError(f"{where}: no answer in {EXEC_TIMEOUT_S:g} s") from None
    if process.returncode:
        raise CredentialError(f"{where}: got exit code {process.returncode}, wanted 0")
    return output


def client_tls_context(
    ca: bytes, certificate: bytes, key: bytes, source: str, *, is_insecure: bool = False
) -> ssl.SSLContext:
    """How TLS is spoken as a client. ca: PEM or DER, empty for those of the system. Raises
    CredentialError."""
    try:
        context = ssl.create_default_context(cadata=_pem(ca) if ca else None)
    except (ssl.SSLError, ValueError) as problem:
        raise CredentialError(f"{source}: certificate authority: {problem}") from None
    # Authorities of clusters leave out what Python has asked for since 3.13, and Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        with _temporary_file(certificate + b"\n" + key) as path:
            try:
                # Without a password OpenSSL would ask for that of a locked key.
                context.load_cert_chain(path, password="")
            except (ssl.SSLError, ValueError) as problem:
                raise CredentialError(f"{source}: client certificate and key: {problem}") from None
    return context


def _pem(data: bytes) -> str | bytes:
    # Bundles have comments before and between, in whatever language.
    return data.decode("ascii", "ignore") if b"-----BEGIN CERTIFICATE" in data else data


@contextlib.contextmanager
def _temporary_file(content: bytes) -> Iterator[str]:
    """The content in a file that nobody else can read, for as long as it is needed."""
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
    """What is in a file; raises CredentialError."""
    try:
        return Path(file).read_bytes()
    except OSError as problem:
        raise _unreadable(source, what, file, problem) from None


def _unreadable(source: str, what: str, path: str, problem: OSError) -> CredentialError:
    text = (problem.strerror or str(problem)).lower()
    return CredentialError(f"{source}: {what}: {path}: got {text}, wanted a file that can be read")


def _is_expired(given: ExecCredential) -> bool:
    if given.until is None:
        return False
    return (given.until - datetime.now(UTC)).total_seconds() < RENEW_BEFORE_EXPIRY_S


def proxy_of(client_config: ClientConfig) -> str | None:
    """The proxy to go through, as the kubeconfig or else the environment says; None for none."""
    if client_config.proxy:
        return client_config.proxy
    parts = urlsplit(client_config.server)
    host = parts.hostname or ""
    if _is_loopback_host(host):
        # As Go does: nobody else's proxy leads here.
        return None
    if proxy_bypass(f"{host}:{parts.port}" if parts.port else host) or proxy_bypass(host):
        return None
    told = getproxies()
    if any(
        _matches_no_proxy_entry(entry.strip().lower(), host)
        for entry in told.get("no", "").split(",")
    ):
        return None
    proxy = told.get(parts.scheme)
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def _matches_no_proxy_entry(entry: str, host: str) -> bool:
    """True where an entry of NO_PROXY is a network with the host in it, or a domain with a star:
    what Python's own reading leaves out."""
    if entry.startswith("*."):
        return host.endswith(entry[1:])
    if "/" not in entry:
        return False
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        return False


def _is_loopback_host(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
