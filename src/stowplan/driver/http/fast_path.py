"""Fast path of the server for short writes: one request, parsed and answered on arrival.

The general path through the HTTP library makes a task, a stream and a response for each request.
Most requests of schedulers and of clients that create pods do not need them: a short write that
arrives in one piece, on a connection without other requests. Only such requests are handled here;
with the first other request the connection switches to the library for good. Both parse with
llhttp, so they understand a request in the same way.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from stowplan.apiserver.auth.impersonation import SEPARATOR

_METHODS = frozenset({b"POST", b"PUT", b"PATCH", b"DELETE"})
_REFUSED = frozenset({"transfer-encoding", "expect", "upgrade", "connection", "content-encoding"})
_HEAD_BYTES_MAX = 8 << 10
_BODY_BYTES_MAX = 64 << 10
_EVERY_VALUE = ("impersonate-group", "impersonate-extra-")
_REQUEST_LINE = re.compile(rb"(POST|PUT|PATCH|DELETE) (/[\w/.~%?=&:,+-]*) HTTP/1\.1", re.ASCII)
_KNOWN_MAX, _KNOWN_BYTES_MAX = 512, 2 << 10
_known: dict[bytes, tuple[Mapping[str, str], int]] = {}
"""Header fields as sent, with what the parser read of them and the length of the body: clients
send the same ones with each request."""


class SimpleRequest(NamedTuple):
    """A fully parsed request. headers: as of `merged_headers`; they must not be changed."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


def merged_headers(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Values by name in lower case; those of a repeated name in one text. pairs: in the order sent,
    names in lower case."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        if name in headers:
            between = SEPARATOR if name.startswith(_EVERY_VALUE) else ", "
            value = headers[name] + between + value
        headers[name] = value
    return headers


class _RequestReader:
    """What the parser finds in the bytes of a request, or of several."""

    __slots__ = ("body", "headers", "is_refused", "n_begun", "n_complete", "target")

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[str, str]] = []
        self.body = b""
        self.n_begun = self.n_complete = 0
        self.is_refused = False

    def on_message_begin(self) -> None:
        """A request begins."""
        self.n_begun += 1

    def on_url(self, part: bytes) -> None:
        """A part of the target."""
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field."""
        lower = name.decode("ascii").lower()
        if lower in _REFUSED:
            self.is_refused = True
        self.headers.append((lower, value.decode("utf-8", "surrogateescape").rstrip(" \t")))

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        self.body += part

    def on_message_complete(self) -> None:
        """A request ends."""
        self.n_complete += 1


def parse_simple_request(data: bytes) -> SimpleRequest | None:
    """The single request in `data`; None if it is anything else, incomplete, or more than one.

    Also None for requests that need more than a response: watches, upgrades, other framing.
    """
    if len(data) > _HEAD_BYTES_MAX + _BODY_BYTES_MAX:
        return None
    line_end, fields_end = data.find(b"\r\n"), data.find(b"\r\n\r\n")
    fields = data[line_end:fields_end]
    known = _known.get(fields)
    line = _REQUEST_LINE.fullmatch(data, 0, line_end) if known is not None else None
    if known is not None and line is not None and len(data) == fields_end + 4 + known[1]:
        method, target = line.groups()
        if line_end <= _HEAD_BYTES_MAX - _KNOWN_BYTES_MAX and b"watch" not in target:
            return SimpleRequest(method.decode(), target.decode(), known[0], data[fields_end + 4 :])
    return _parsed(data, fields)


def _parsed(data: bytes, fields: bytes) -> SimpleRequest | None:
    """As `parse_simple_request`, by the parser; what it reads of the fields is kept."""
    found = _RequestReader()
    parser = HttpRequestParser(found)
    try:
        parser.feed_data(data)
    except (HttpParserError, HttpParserUpgrade):
        # The library answers what is not valid HTTP, or asks for another protocol.
        return None
    method = parser.get_method()
    is_single = found.n_begun == found.n_complete == 1 and not found.is_refused
    is_short = len(data) - len(found.body) <= _HEAD_BYTES_MAX and len(found.body) <= _BODY_BYTES_MAX
    is_plain = method in _METHODS and parser.get_http_version() == "1.1"
    if not (is_single and is_short and is_plain and data.startswith(method + b" /")):
        return None
    if b"watch" in found.target:
        return None
    headers = merged_headers(found.headers)
    if len(fields) <= _KNOWN_BYTES_MAX:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[fields] = headers, len(found.body)
    return SimpleRequest(method.decode(), found.target.decode("ascii"), headers, found.body)


class SimpleRequestHandler(Protocol):
    """Answers simple requests."""

    def try_fast_path(self, request: SimpleRequest, connection: FastPathConnection) -> bool:
        """Answer, now or later; False if nothing was done and the general path must be taken.

        While the response is pending, the connection is held.
        """
        ...


class FastPathConnection(asyncio.Protocol):
    """A connection on the fast path until a request arrives that is not simple.

    library: makes the HTTP library's protocol; it is created, and gets the connection for good,
    with the first request of the general path. open_ones: connections on the fast path. A
    connection without requests for idle_s is closed. mark_idle: called with a new connection that
    has sent nothing yet.
    """

    def __init__(
        self,
        library: Callable[[], asyncio.Protocol],
        direct: SimpleRequestHandler,
        idle_s: float,
        open_ones: set[FastPathConnection],
        mark_idle: Callable[[asyncio.Transport], None],
    ) -> None:
        self.transport: asyncio.Transport | None = None
        self._library = library
        self._handler = direct
        self._idle_s = idle_s
        self._connections = open_ones
        self._mark_idle = mark_idle
        self._is_full = False
        self._is_held = False
        self._is_at_end = False
        self._early = b""
        self._latest = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the connection."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connections.add(self)
        self._mark_idle(transport)
        loop = asyncio.get_running_loop()
        self._latest = loop.time()
        self._timer = loop.call_later(self._idle_s, self._close_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has disconnected."""
        self._leave()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._is_full = True

    def resume_writing(self) -> None:
        """The client reads again."""
        self._is_full = False

    def hold(self) -> None:
        """A response is pending: until `release`, what the client sends is kept."""
        self._is_held = True

    def release(self) -> None:
        """The response was sent: handle what the client has sent meanwhile."""
        self._is_held = False
        early, self._early = self._early, b""
        transport = self.transport
        if transport is None:
            return
        if early:
            transport.resume_reading()
            self.data_received(early)
        elif self._is_at_end:
            transport.close()

    def eof_received(self) -> bool:
        """The client sends nothing more; True to send it the pending response."""
        self._is_at_end = True
        transport = self.transport
        # Over TLS a connection cannot stay half open.
        return (
            self._is_held and transport is not None and not transport.get_extra_info("sslcontext")
        )

    def data_received(self, data: bytes) -> None:
        """Handle a simple request, or hand over to the library."""
        transport = self.transport
        if transport is None:
            return
        if self._is_held:
            # Clients await the response before they send more; one that does not is not read.
            self._early += data
            transport.pause_reading()
            return
        request = parse_simple_request(data)
        if request is not None and self._handler.try_fast_path(request, self):
            self._latest = asyncio.get_running_loop().time()
            return
        self._leave()
        library = self._library()
        library.connection_made(transport)
        transport.set_protocol(library)
        if self._is_full:
            library.pause_writing()
        library.data_received(data)

    def _leave(self) -> None:
        self.transport = None
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_if_idle(self) -> None:
        """Close the connection if it was idle for too long."""
        loop = asyncio.get_running_loop()
        transport = self.transport
        if transport is None:
            return
        due = self._latest + self._idle_s
        if loop.time() >= due and not self._is_held:
            transport.close()
            self._leave()
            return
        self._timer = loop.call_at(max(due, loop.time() + self._idle_s / 4), self._close_if_idle)
