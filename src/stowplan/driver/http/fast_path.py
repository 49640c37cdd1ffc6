"""Fast path of the server for short writes: one request, parsed and answered on arrival.

The general path through the HTTP library makes a task, a stream and a response for each request.
Most requests of schedulers and of clients that create pods do not need them: a short write that
arrives in one piece, on a connection without other requests. Only fully understood requests are
handled here; with the first other request the connection switches to the library for good, so that
no request is read by two parsers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

_METHODS = r"POST|PUT|PATCH|DELETE"
_HEAD = re.compile(
    rb"(" + _METHODS.encode() + rb") (/[!-~]*) HTTP/1\.1\r\n((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[ \t]*"
    rb"[^\x00-\x08\x0a-\x1f\x7f]*\r\n){1,64})\r\n"
)
_REFUSED = frozenset({"transfer-encoding", "expect", "upgrade", "connection", "content-encoding"})
_LENGTH = re.compile(r"[0-9]{1,9}")
_HEAD_BYTES_MAX = 8 << 10
_BODY_BYTES_MAX = 64 << 10


class SimpleRequest(NamedTuple):
    """A fully parsed request. headers: names in lower case, in the order sent."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


def parse_simple_request(data: bytes) -> SimpleRequest | None:
    """The single request in `data`; None if it is anything else, incomplete, or more than one.

    Also None for requests that need more than a response: watches, upgrades, other framing.
    """
    if len(data) > _HEAD_BYTES_MAX + _BODY_BYTES_MAX:
        return None
    found = _HEAD.match(data, 0, _HEAD_BYTES_MAX)
    if found is None or b"watch" in found[2]:
        return None
    headers = []
    length = -1
    for line in found[3].decode("utf-8", "surrogateescape").split("\r\n")[:-1]:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if name in _REFUSED:
            return None
        if name == "content-length":
            if length >= 0 or _LENGTH.fullmatch(value) is None:
                return None
            length = int(value)
        headers.append((name, value))
    body = data[found.end() :]
    if len(body) != max(length, 0):
        return None
    return SimpleRequest(found[1].decode(), found[2].decode(), headers, body)


class SimpleRequestHandler(Protocol):
    """Answers simple requests."""

    def try_fast_path(self, request: SimpleRequest, transport: asyncio.Transport) -> bool:
        """Answer, now or later; False if nothing was done and the general path must be taken.

        While the response is pending, reading is paused.
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

    def data_received(self, data: bytes) -> None:
        """Handle a simple request, or hand over to the library."""
        transport = self.transport
        if transport is None:
            return
        request = parse_simple_request(data)
        if request is not None and self._handler.try_fast_path(request, transport):
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
        # A connection with a pending response has paused reading and is not idle.
        if loop.time() >= due and transport.is_reading():
            transport.close()
            self._leave()
            return
        self._timer = loop.call_at(max(due, loop.time() + self._idle_s / 4), self._close_if_idle)
