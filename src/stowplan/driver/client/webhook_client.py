"""Calls webhooks: over TLS, all that one write needs at the same time, each within its time.

The texts of failures are those of Go's client.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from urllib.parse import urlsplit

from stowplan.apis.admissionregistration.webhook_calls import WebhookQuestion, WebhookReply

ANSWER_BYTES_MAX = 3 << 20
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, */*"}
_SELF_SIGNED = (18, 19, 20, 21)
"""Verify codes of certificates whose authority is unknown."""
_EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 10, 62, 64


class _DialledConnection(http.client.HTTPSConnection):
    """A connection to another place than the url names, whose certificate is for the url's."""

    dial: tuple[str, int] | None = None

    def connect(self) -> None:
        """Connect and shake hands."""
        where = self.dial or (self.host, self.port)
        plain = socket.create_connection(where, self.timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context: ssl.SSLContext = self._context  # type: ignore[attr-defined]
        self.sock = context.wrap_socket(plain, server_hostname=self.host)


def call_webhooks(questions: Sequence[WebhookQuestion]) -> list[WebhookReply]:
    """The answers of webhooks, in the order of the questions."""
    if len(questions) == 1:
        return [_call(questions[0])]
    with ThreadPoolExecutor(min(16, len(questions)), "webhook-calls") as threads:
        return list(threads.map(_call, questions))


def _call(question: WebhookQuestion) -> WebhookReply:
    deadline = monotonic() + question.timeout_s
    try:
        context = ssl.create_default_context()
        if question.ca_bundle:
            context = ssl.create_default_context(cadata=question.ca_bundle.decode("ascii"))
        status, body = _exchange(question, context, deadline)
    except (OSError, http.client.HTTPException, ValueError) as error:
        text = f'Post "{question.url}": {_failure_text(question, error)}'
        return WebhookReply(question.uid, error=text)
    return WebhookReply(question.uid, status, body)


def _exchange(
    question: WebhookQuestion, context: ssl.SSLContext, deadline: float
) -> tuple[int, bytes]:
    """Status and body. Raises OSError, HTTPException, ValueError."""
    parts = urlsplit(question.url)
    host, port = parts.hostname or "", parts.port or 443
    connection = _DialledConnection(host, port, timeout=question.timeout_s, context=context)
    connection.dial = question.dial
    try:
        path = parts.path or "/"
        connection.request("POST", f"{path}?{parts.query}", question.body, _HEADERS)
        _leave_time(connection.sock, deadline)
        answer = connection.getresponse()
        body = b""
        while part := answer.read1(64 << 10):
            body += part
            if len(body) > ANSWER_BYTES_MAX:
                raise ValueError(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
            if connection.sock is not None:
                _leave_time(connection.sock, deadline)
        return answer.status, body
    finally:
        connection.close()


def _leave_time(held: socket.socket, deadline: float) -> None:
    """Let the socket wait for what is left. Raises TimeoutError."""
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError
    held.settimeout(left)


def _failure_text(question: WebhookQuestion, error: Exception) -> str:
    """What Go's client says of a failure."""
    parts = urlsplit(question.url)
    host, port = question.dial or (parts.hostname or "", parts.port or 443)
    if isinstance(error, TimeoutError):
        return "context deadline exceeded"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: {_certificate_text(error, host)}"
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
            return "http: server gave HTTP response to HTTPS client"
        if isinstance(error, ssl.SSLEOFError):
            return "EOF"
        return f"tls: {error.reason or error}"
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {host}: no such host"
    if isinstance(error, ConnectionRefusedError):
        return f"dial tcp {_joined(host, port)}: connect: connection refused"
    if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError):
        return "EOF"
    return f"dial tcp {_joined(host, port)}: {getattr(error, 'strerror', None) or error}"


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _certificate_text(error: ssl.SSLCertVerificationError, host: str) -> str:
    if error.verify_code in _SELF_SIGNED:
        return "x509: certificate signed by unknown authority"
    if error.verify_code in (_OTHER_NAME, _OTHER_ADDRESS):
        return f"x509: certificate is not valid for {host}"
    if error.verify_code == _EXPIRED:
        return "x509: certificate has expired or is not yet valid"
    return f"x509: {error.verify_message}"
