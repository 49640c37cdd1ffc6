"""Writing: the short way of a request over a kept connection, for the many small ones.

A request leaves in one piece and its answer is read where it arrives, without the streams, hooks
and timers of a general client: that takes a third of the processor time. The last thing before the
bytes are handed over is to ask whether they may leave, and nothing comes in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from aiohappyeyeballs import start_connection

from stowplan.client.http_response import MalformedResponse, ResponseParser
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import ApiResponse

CONNECT_S = 10.0
IDLE_S = 30.0
"""A connection that nobody has used for so long may have been forgotten by those in between."""
TIMEOUT_POLL_S = 0.1
HAPPY_EYEBALLS_DELAY_S = 0.25
"""Of one address of the server before the next is tried beside it (RFC 8305)."""
LEASE_EXPIRED_TEXT = "the lease is over"
SERVER_CLOSED_TEXT = "the server has closed the connection"

RequestGuard = Callable[[], bool]


class LeaseExpired(Exception):
    """A write was held back, as somebody else may lead by now."""


class HttpConnection(asyncio.Protocol):
    """A connection on which one request follows the other. is_over: it can carry no more of them.
    since: when it was made, or the last answer came. until: when the next one has to be there."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.is_closed = False
        self.since = self._loop.time()
        self.until = math.inf
        self._transport: asyncio.Transport | None = None
        self._parser = ResponseParser()
        self._waiting: asyncio.Future[ApiResponse] | None = None

    def ask(self, data: bytes, until: float) -> asyncio.Future[ApiResponse]:
        """Send a request; its answer, or OSError, TimeoutError where there is none. until: when it
        has to be there, by the clock of the loop."""
        assert self._transport is not None
        self._parser = ResponseParser()
        waiting = self._waiting = self._loop.create_future()
        self.until = until
        if self.is_closed:
            # Nobody would say so of what is written now.
            self._fail(ConnectionError(SERVER_CLOSED_TEXT))
        else:
            self._transport.write(data)
        return waiting

    def give_up(self) -> None:
        """Wait for the answer no more."""
        self._fail(TimeoutError())

    def abort(self) -> None:
        """Use it no more."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        made = transport.get_extra_info("socket")
        if made is not None:
            enable_keepalive(made)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            # Nobody has asked: a server that says good-bye.
            self.abort()
            return
        try:
            answer = self._parser.feed(data)
        except MalformedResponse as problem:
            self._fail(ConnectionError(str(problem)))
            return
        if answer is not None:
            self._answered(answer)

    def connection_lost(self, problem: Exception | None) -> None:
        self.is_closed = True
        if self._waiting is None:
            return
        answer = self._parser.ended()
        if answer is not None and problem is None:
            self._answered(answer)
        else:
            self._fail(problem or ConnectionError(SERVER_CLOSED_TEXT))

    def _answered(self, answer: ApiResponse) -> None:
        waiting, self._waiting = self._waiting, None
        self.since = self._loop.time()
        if not self._parser.keep_alive:
            self.abort()
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _fail(self, problem: Exception) -> None:
        waiting, self._waiting = self._waiting, None
        self.abort()
        if waiting is None or waiting.done():
            return
        status = self._parser.status
        if status:
            # The head has come: what was written is known to be written, or refused.
            fault = f"the answer was cut off: {exception_text(problem)}"
            waiting.set_result(ApiResponse(status, fault=fault))
        else:
            waiting.set_exception(problem)


class ConnectionPool:
    """Kept connections to one server, made as they are needed, at most `most` in use at once."""

    def __init__(
        self, server: str, trust: ssl.SSLContext | None, server_name: str, agent: str, most: int
    ) -> None:
        """trust: how TLS is spoken, None where the address has none. server_name: whom the
        certificate names, "" for the host."""
        parts = urlsplit(server)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._root = parts.path.rstrip("/")
        self._trust = trust
        self._name = (server_name or self._host) if trust is not None else None
        self._head = (
            f"Host: {parts.netloc.rpartition('@')[2]}\r\nUser-Agent: {agent}\r\n"
            "Accept: application/json\r\n"
        )
        self._idle: deque[HttpConnection] = deque()
        self._busy: set[HttpConnection] = set()
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._free = asyncio.Semaphore(most)
        self._is_closed = False

    async def send(
        self, request: ApiRequest, headers: list[tuple[str, str]], guard: RequestGuard
    ) -> ApiResponse:
        """The answer to a request. headers: who asks. guard: whether it may leave, asked last.
        Raises LeaseOver, OSError, TimeoutError."""
        data = self._encode_request(request, headers)
        async with self._free:
            timeout_s = math.inf if request.timeout_s is None else request.timeout_s
            until = asyncio.get_running_loop().time() + timeout_s
            connection = self._take_idle() or await self._connect(min(CONNECT_S, timeout_s))
            if not guard():
                self._release(connection)
                raise LeaseExpired(LEASE_EXPIRED_TEXT)
            waiting = connection.ask(data, until)
            self._busy.add(connection)
            if self._expiry_timer is None:
                self._expire_requests()
            try:
                answer = await waiting
            except BaseException:
                # Its answer may still come, and would be taken for that to the next request.
                connection.abort()
                raise
            finally:
                self._busy.discard(connection)
            self._release(connection)
            return answer

    async def close(self) -> None:
        """Give the connections back, those in use as soon as they are not any more."""
        self._is_closed = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
        # They are closed in the next round of the loop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _encode_request(self, request: ApiRequest, headers: list[tuple[str, str]]) -> bytes:
        more = "".join(f"{name}: {value}\r\n" for name, value in headers)
        if more.count("\n") != len(headers) or more.count("\r") != len(headers):
            raise ConnectionError("got a header of more than one line, wanted one")
        kind = f"Content-Type: {request.content_type}\r\n" if request.content_type else ""
        head = (
            f"{request.method} {self._root}{request.target} HTTP/1.1\r\n{self._head}{more}{kind}"
            f"Content-Length: {len(request.body)}\r\n\r\n"
        )
        return head.encode() + request.body

    def _expire_requests(self) -> None:
        """Give up what takes too long: one timer for all, as hardly any ever comes to that."""
        loop = asyncio.get_running_loop()
        self._expiry_timer = None
        if self._busy:
            now = loop.time()
            for connection in [connection for connection in self._busy if connection.until <= now]:
                connection.give_up()
            self._expiry_timer = loop.call_later(TIMEOUT_POLL_S, self._expire_requests)

    def _take_idle(self) -> HttpConnection | None:
        """The connection that was used last, as those of before are likelier to be forgotten."""
        oldest = asyncio.get_running_loop().time() - IDLE_S
        idle = self._idle
        while idle and idle[0].since < oldest:
            idle.popleft().abort()
        while idle:
            connection = idle.pop()
            if not connection.is_closed:
                return connection
        return None

    def _release(self, connection: HttpConnection) -> None:
        if self._is_closed:
            connection.abort()
        elif not connection.is_closed:
            self._idle.append(connection)

    async def _connect(self, limit_s: float) -> HttpConnection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(limit_s):
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            # Not by create_connection: cancelled between two addresses it leaves a socket open.
            made = await start_connection(
                found, happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY_S, loop=loop
            )
            try:
                _, connection = await loop.create_connection(
                    HttpConnection, sock=made, ssl=self._trust, server_hostname=self._name
                )
            except BaseException:
                shut_down_socket(made)
                raise
        return connection


def enable_keepalive(made: Any) -> None:
    """Have a socket notice within half a minute when nobody is at the other end any more."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    options = (
        ("TCP_KEEPIDLE", 15),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 30_000),
    )
    for name, value in options:
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                made.setsockopt(socket.IPPROTO_TCP, option, value)


def shut_down_socket(made: socket.socket) -> None:
    """Have whatever transport still has a socket see its end, and close it. A transport of TLS that
    is closed before its handshake has begun does neither by itself."""
    with contextlib.suppress(OSError):
        made.shutdown(socket.SHUT_RDWR)


def exception_text(problem: BaseException) -> str:
    """What went wrong in words."""
    text = str(problem)
    if isinstance(problem, TimeoutError):
        return text or "no answer in time"
    return text or type(problem).__name__
