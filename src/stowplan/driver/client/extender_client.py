"""HTTP client of scheduler extenders.

Errors are worded like those of Go's HTTP client, as users know them from kube-scheduler.

Source: kube-scheduler v1.36, scheduler/extender.go; FORMAT of the recorded conversations.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from stowplan.config.model import Extender
from stowplan.driver.client.credentials import CredentialError, client_tls_context
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.messages.extender_api import ObjectEncoder, encode_body, object_tree, redact_password

IDLE_S = 90.0
_HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "gzip"}
_TIMEOUT_AWAITING_HEADERS = (
    "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
)
_TIMEOUT_READING_BODY = (
    "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
)


class ExtenderClient:
    """Calls the extenders of a configuration over kept connections. whole: returns an object in the
    API server's encoding."""

    def __init__(self, extenders: Sequence[Extender], whole: ObjectEncoder = object_tree) -> None:
        """Raises CredentialError when certificates cannot be read."""
        self._whole = whole
        self._trust = [_tls_of(extender) for extender in extenders]
        self._sessions: dict[int, aiohttp.ClientSession] = {}

    async def stop(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def ask(self, effect: to_do.CallExtender) -> Event:
        """Call an extender; returns its response."""
        question = effect.question
        url = question.extender.url(question.verb)
        failed = f'Post "{redact_password(url)}": '
        has_head = False
        try:
            async with asyncio.timeout(effect.timeout_s):
                session = self._session(question.extender.place)
                address = URL(url)
                async with session.post(
                    address.with_user(None),
                    data=encode_body(question.body, self._whole),
                    headers=_basic_auth_header(address),
                    server_hostname=self._server_name(question.extender.place),
                ) as response:
                    has_head = True
                    body = await response.read()
                    return happened.ExtenderReplied(
                        effect.effect, effect.uid, response.status, body
                    )
        except TimeoutError:
            reason = _TIMEOUT_READING_BODY if has_head else failed + _TIMEOUT_AWAITING_HEADERS
        except (aiohttp.ClientError, OSError, ValueError) as problem:
            reason = failed + _go_error_text(problem, url)
        return happened.ExtenderFailed(effect.effect, effect.uid, reason)

    def _session(self, place: int) -> aiohttp.ClientSession:
        session = self._sessions.get(place)
        if session is None:
            context = self._trust[place][0]
            connector = aiohttp.TCPConnector(
                limit=0, ssl=True if context is None else context, keepalive_timeout=IDLE_S
            )
            session = self._sessions[place] = aiohttp.ClientSession(
                connector=connector,
                headers=_HEADERS,
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return session

    def _server_name(self, place: int) -> str | None:
        return self._trust[place][1] or None


def _tls_of(extender: Extender) -> tuple[ssl.SSLContext | None, str]:
    """TLS settings and expected server name. None: system defaults."""
    tls = extender.tls_config
    if tls is None:
        # enableHTTPS without a CA: the certificate is not verified.
        source = f"extender {redact_password(extender.url_prefix)}"
        if not extender.enable_https:
            return None, ""
        return client_tls_context(b"", b"", b"", source, is_insecure=True), ""
    source = f"extender {redact_password(extender.url_prefix)}: tlsConfig"
    ca = _data_or_file_content(tls.ca_data, tls.ca_file, source)
    is_insecure = tls.insecure or (extender.enable_https and not ca)
    context = client_tls_context(
        ca,
        _data_or_file_content(tls.cert_data, tls.cert_file, source),
        _data_or_file_content(tls.key_data, tls.key_file, source),
        source,
        is_insecure=is_insecure,
    )
    return context, tls.server_name


def _data_or_file_content(data: bytes, file: str, source: str) -> bytes:
    if data or not file:
        return data
    try:
        return Path(file).read_bytes()
    except OSError as problem:
        raise CredentialError(f"{source}: {file}: {(problem.strerror or '').lower()}") from None


def _basic_auth_header(address: URL) -> dict[str, str]:
    if not address.user:
        return {}
    pair = f"{address.user}:{address.password or ''}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _go_error_text(problem: Exception, url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    place = f"{parts.hostname}:{port}"
    if isinstance(problem, aiohttp.ServerDisconnectedError):
        return "EOF"
    if isinstance(problem, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: {problem.certificate_error}"
    if isinstance(problem, aiohttp.ClientConnectorError):
        text = (problem.os_error.strerror or str(problem.os_error)).lower()
        if isinstance(problem.os_error, ConnectionRefusedError):
            text = "connect: connection refused"
        return f"dial tcp {place}: {text}"
    if isinstance(problem, ConnectionResetError):
        return f"read tcp {place}: read: connection reset by peer"
    if isinstance(problem, aiohttp.ClientPayloadError):
        return "unexpected EOF"
    return str(problem) or type(problem).__name__
