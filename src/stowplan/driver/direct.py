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
from typing import NamedTuple, Protocol

from aiohttp import web

_METHODS = r"POST|PUT|PATCH|DELETE"
_HEAD = re.compile(
    rb"(" + _METHODS.encode() + rb") (/[!-~]*) HTTP/1\.1\r\n((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[ \t]*"
    rb"[^\x00-\x08\x0a-\x1f\x7f]*\r\n){1,64})\r\n"
)
_REFUSED = frozenset({"transfer-encoding", "expect", "upgrade", "connection", "content-encoding"})
_HEAD_BYTES_MAX = 8 << 10
_BODY_BYTES_MAX = 64 << 10


class Plain(NamedTuple):
    """A request that is understood whole. headers: names in lower case, as they came."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


def plain(data: bytes) -> Plain | None:
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
            if length >= 0 or not value.isascii() or not value.isdigit():
                return None
            length = int(value)
        headers.append((name, value))
    body = data[found.end() :]
    if len(body) != max(length, 0):
        return None
    return Plain(found[1].decode(), found[2].decode(), headers, body)


class Direct(Protocol):
    """Who answers plain requests."""

    def answer_directly(self, request: Plain, transport: asyncio.Transport) -> bool:
        """Answer, now or later; False if nothing was done and the general way is to be taken.

        When the answer takes time, reading is paused until it is there.
        """
        ...


class Connection(web.RequestHandler):
    """A connection of the HTTP library that tries the short way first."""

    def __init__(self, manager: web.Server, direct: Direct, idle_s: float) -> None:
        loop = asyncio.get_running_loop()
        settings = manager._kwargs
        super().__init__(manager, loop=loop, **settings)
        self._direct: Direct | None = direct
        self._idle_s = idle_s

    def data_received(self, data: bytes) -> None:
        """Take a plain request, or hand over to the library."""
        if self._direct is not None:
            request = plain(data)
            transport = self.transport
            if (
                request is not None
                and isinstance(transport, asyncio.Transport)
                and self._direct.answer_directly(request, transport)
            ):
                # The library would otherwise think that nothing has come for so long.
                self._next_keepalive_close_time = self._loop.time() + self._idle_s
                return
            self._direct = None
        super().data_received(data)
