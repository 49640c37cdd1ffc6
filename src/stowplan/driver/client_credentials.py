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

from stowplan.client.execution import EXEC_INFO, Credential, ExecSpec, credential_in, exec_info
from stowplan.client.kubeconfig import Blob, Connection
from stowplan.driver.clocks import steady

REREAD_S = 60
RUN_TIMEOUT_S = 60.0
EARLY_S = 10
"""What is over so soon is taken for over."""
SECOND = 1_000_000_000


class CredentialError(ValueError):
    """Who asks, or how the server is trusted, cannot be found out: says where, got and wanted."""


class Credentials:
    """Of one connection. Used by one event loop."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._token = connection.token
        self._read_at: int | None = None
        self._given: Credential | None = None
        self._from_provider = ""
        self._lock = asyncio.Lock()

    @property
    def is_changing(self) -> bool:
        """True where a refusal may be mended by asking again."""
        connection = self.connection
        return bool(connection.token_file or connection.run or connection.provider)

    @property
    def certificate(self) -> str:
        """The one that a program gave last, "" for none."""
        return "" if self._given is None else self._given.certificate

    async def headers(self) -> list[tuple[str, str]]:
        """The headers that say who asks; raises CredentialError."""
        found = list(self.connection.headers)
        token = await self._current_token()
        if token:
            found.append(("Authorization", f"Bearer {token}"))
        elif self.connection.username:
            pair = f"{self.connection.username}:{self.connection.password}".encode()
            found.append(("Authorization", f"Basic {base64.b64encode(pair).decode()}"))
        return found

    def forget(self) -> None:
        """The server did not take them: read, or run, anew."""
        self._read_at = None
        self._given = None

    async def _current_token(self) -> str:
        connection = self.connection
        if connection.token_file:
            return self._token_in_file(connection.token_file)
        if connection.run is not None:
            return (await self.given()).token
        if connection.provider and not self._token:
            return await self._provided()
        return self._token

    async def _provided(self) -> str:
        """What a provider of old gives, asked again every minute: it knows when that is over."""
        now = steady()
        async with self._lock:
            if self._read_at is None or now - self._read_at >= REREAD_S * SECOND:
                self._from_provider = await asyncio.to_thread(provided_token, self.connection)
                self._read_at = now
            return self._from_provider

    def _token_in_file(self, path: str) -> str:
        now = steady()
        if self._read_at is None or now - self._read_at >= REREAD_S * SECOND:
            try:
                token = Path(path).read_text().strip()
            except OSError as problem:
                if self._token:
                    return self._token
                raise _unreadable(self.connection.source, "tokenFile", path, problem) from None
            except UnicodeDecodeError:
                raise CredentialError(f"{path}: got bytes, wanted a token as text") from None
            if token:
                self._token, self._read_at = token, now
        return self._token

    async def given(self) -> Credential:
        """What the program gives, run again where that is over; raises CredentialError."""
        async with self._lock:
            if self._given is None or _is_over(self._given):
                spec = self.connection.run
                assert spec is not None
                self._given = await self._run(spec)
            return self._given

    async def _run(self, spec: ExecSpec) -> Credential:
        connection = self.connection
        told = exec_info(
            spec,
            connection.server,
            _content(connection.ca, connection.source, "certificate-authority"),
            connection.server_name,
            is_insecure=connection.is_insecure,
        )
        where = f"{connection.source}: exec: {spec.command}"
        if spec.is_interactive and not sys.stdin.isatty():
            raise CredentialError(f"{where}: got a program that has to ask, wanted a terminal")
        output = await _output(spec, told, where)
        try:
            return credential_in(spec, output)
        except ValueError as problem:
            raise CredentialError(f"{where}: {problem}") from None

    async def trust(self) -> ssl.SSLContext | None:
        """How TLS is spoken, None where the address has none; raises CredentialError."""
        connection = self.connection
        if urlsplit(connection.server).scheme != "https":
            return None
        source = connection.source
        certificate = _content(connection.certificate, source, "client-certificate")
        key = _content(connection.key, source, "client-key")
        if connection.run is not None:
            given = await self.given()
            if given.certificate:
                certificate, key = given.certificate.encode(), given.key.encode()
        ca = _content(connection.ca, source, "certificate-authority")
        return trust(ca, certificate, key, source, is_insecure=connection.is_insecure)


def provided_token(connection: Connection) -> str:
    """The token that OIDC or another provider of old gives, by the official client; raises
    CredentialError."""
    where = f"{connection.source}: auth-provider: got {connection.provider!r}"
    try:
        client: Any = import_module("kubernetes.client")
        config: Any = import_module("kubernetes.config")
    except ImportError:
        wanted = "an exec plugin, or the extra that reads providers (stowplan[kubernetes])"
        raise CredentialError(f"{where}, wanted {wanted}") from None
    found = client.Configuration()
    try:
        config.load_kube_config(
            os.pathsep.join(connection.files),
            connection.context,
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


async def _output(spec: ExecSpec, told: str, where: str) -> bytes:
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
        output, _ = await asyncio.wait_for(process.communicate(), RUN_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise CredentialError(f"{where}: no answer in {RUN_TIMEOUT_S:g} s") from None
    if process.returncode:
        raise CredentialError(f"{where}: got exit code {process.returncode}, wanted 0")
    return output


def trust(
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
        with _on_disk(certificate + b"\n" + key) as path:
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
def _on_disk(content: bytes) -> Iterator[str]:
    """The content in a file that nobody else can read, for as long as it is needed."""
    handle, path = tempfile.mkstemp(prefix="stowplan-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        yield path
    finally:
        Path(path).unlink()


def _content(blob: Blob, source: str, what: str) -> bytes:
    return blob.data if blob.data or not blob.file else content_of(blob.file, source, what)


def content_of(file: str, source: str, what: str) -> bytes:
    """What is in a file; raises CredentialError."""
    try:
        return Path(file).read_bytes()
    except OSError as problem:
        raise _unreadable(source, what, file, problem) from None


def _unreadable(source: str, what: str, path: str, problem: OSError) -> CredentialError:
    text = (problem.strerror or str(problem)).lower()
    return CredentialError(f"{source}: {what}: {path}: got {text}, wanted a file that can be read")


def _is_over(given: Credential) -> bool:
    if given.until is None:
        return False
    return (given.until - datetime.now(UTC)).total_seconds() < EARLY_S


def proxy_of(connection: Connection) -> str | None:
    """The proxy to go through, as the kubeconfig or else the environment says; None for none."""
    if connection.proxy:
        return connection.proxy
    parts = urlsplit(connection.server)
    host = parts.hostname or ""
    if _is_this_computer(host):
        # As Go does: nobody else's proxy leads here.
        return None
    if proxy_bypass(f"{host}:{parts.port}" if parts.port else host) or proxy_bypass(host):
        return None
    told = getproxies()
    if any(_excepts(entry.strip().lower(), host) for entry in told.get("no", "").split(",")):
        return None
    proxy = told.get(parts.scheme)
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def _excepts(entry: str, host: str) -> bool:
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


def _is_this_computer(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
