"""Writes of the plainest kind, read and answered where they arrive.

The general way through the HTTP library makes a task, a stream and a response for each request.
Most requests of a scheduler and of whoever creates pods need none of it: a short write that comes
in one piece, on a connection where nothing else is under way. Only what is understood to the last
byte is taken here; with the first request that is not, the connection goes the general way for
good, so that no request is ever read by two parsers.
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
    """A request that is understood whole. headers: names in lower case, as they came."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


def parse_simple_request(data: bytes) -> SimpleRequest | None:
    """The one request that `data` is; None if it is anything else, a part, or more than one.

    Also None for what asks for more than an answer: watches, upgrades, another framing.
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
    """Who answers plain requests."""

    def try_fast_path(self, request: SimpleRequest, transport: asyncio.Transport) -> bool:
        """Answer, now or later; False if nothing was done and the general way is to be taken.

        When the answer takes time, reading is paused until it is there.
        """
        ...


class FastPathConnection(asyncio.Protocol):
    """A connection that goes the short way until a request comes that is not plain.

    library: makes the HTTP library's end of a connection. It is made, and given the connection for
    good, with the first request that goes the general way. open_ones: those that have not come to
    that yet. One on which nothing plain has come for idle_s is closed. rests: told of a connection
    that is there and has asked nothing yet.
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
        """The connection is there."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connections.add(self)
        self._mark_idle(transport)
        loop = asyncio.get_running_loop()
        self._latest = loop.time()
        self._timer = loop.call_later(self._idle_s, self._close_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._leave()

    def pause_writing(self) -> None:
        """The client does not take what it is sent."""
        self._is_full = True

    def resume_writing(self) -> None:
        """It has taken it."""
        self._is_full = False

    def data_received(self, data: bytes) -> None:
        """Take a plain request, or hand over to the library."""
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
        # One whose answer is not there yet does not read, and is not idle.
        if loop.time() >= due and transport.is_reading():
            transport.close()
            self._leave()
            return
        self._timer = loop.call_at(max(due, loop.time() + self._idle_s / 4), self._close_if_idle)
