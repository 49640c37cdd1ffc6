"""Requests over kept connections, one at a time on each.

A request is sent in one piece and its response parsed on arrival, without the streams, hooks and
timers of a general client: a third of the CPU time, and nothing to import at the start. The write
check is asked directly before the bytes are sent, with nothing in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_address
from typing import Any, Protocol
from urllib.parse import urlsplit

from aiohappyeyeballs import start_connection

from stowplan.client.http_response import (
    ENCODING,
    MalformedResponse,
    ResponseParser,
    StreamParser,
)
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import ApiResponse
from stowplan.driver.client.tls_transport import CLOSED_TEXT, connect_tls
from stowplan.driver.loopback import is_loopback

CONNECTIONS_MAX = 256
"""Requests under way at once, without streams."""
CONNECT_S = 10.0
IDLE_S = 30.0
"""Middleboxes may have dropped a connection that was idle for this long."""
OPENING_MAX = 8
"""Connections that are opened at once. A handshake takes the server more processor time than a
Binding does: the first requests would wait for as many handshakes as there are requests."""
IPV4 = 4
UNREAD_BYTES_MAX = 1 << 18
"""With more bytes of a stream that are not read, no more are taken from the socket."""
TIMEOUT_POLL_S = 0.1
HAPPY_EYEBALLS_DELAY_S = 0.25
"""Delay before the server's next address is tried in parallel (RFC 8305)."""
LEASE_EXPIRED_TEXT = "lease expired"
SERVER_CLOSED_TEXT, CLIENT_CLOSED_TEXT = CLOSED_TEXT, "the client is closed"

WriteCheck = Callable[[], bool]


class LeaseExpired(Exception):
    """A write was not sent, because another scheduler may lead by now."""


class BodyReader(Protocol):
    """What a watch is read from."""

    async def readany(self) -> bytes:
        """All bytes that have arrived and were not read yet; waits for some. Empty at the end.
        Raises OSError when the response is cut off."""

    async def leave_unread(self, seconds: float) -> None:
        """Take nothing from the socket for so long."""


class ResponseStream:
    """A `BodyReader` that its connection feeds. is_ended: no more will come."""

    def __init__(self, transport: asyncio.Transport) -> None:
        """transport: of the connection; it reads nothing while too much is unread."""
        self.is_ended = False
        self._transport = transport
        self._n_unread = 0
        self._is_paused = False
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._problem: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None

    def feed(self, data: bytes) -> None:
        """Add bytes."""
        if data:
            self._parts.append(data)
            self._n_unread += len(data)
            if self._n_unread > UNREAD_BYTES_MAX and not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()
            self._wake()

    def end(self, problem: Exception | None = None) -> None:
        """Nothing comes any more. problem: why it is cut off, None for a regular end."""
        if not self.is_ended:
            self.is_ended, self._problem = True, problem
            self._resume()
            self._wake()

    async def readany(self) -> bytes:
        """See `BodyReader`."""
        while not self._parts:
            if self._problem is not None:
                raise self._problem
            if self.is_ended:
                return b""
            self._waiting = self._loop.create_future()
            await self._waiting
        data = b"".join(self._parts)
        self._parts.clear()
        self._n_unread = 0
        self._resume()
        return data

    async def leave_unread(self, seconds: float) -> None:
        """See `BodyReader`. What arrives meanwhile is read in one turn of the event loop."""
        if not self._is_paused and not self.is_ended:
            self._is_paused = True
            self._transport.pause_reading()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._resume()

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)


class ConnectFailed(ConnectionError):
    """No connection could be made. cause: the error itself; the text, which is aiohttp's, names the
    address as well."""

    def __init__(self, host: str, port: int, cause: OSError) -> None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = f"ssl:True [{type(cause).__name__}: {cause.args}]"
        else:
            why = f"ssl:default [{cause.strerror or exception_text(cause)}]"
        super().__init__(f"Cannot connect to host {host}:{port} {why}")
        self.cause = cause


class HttpConnection(asyncio.Protocol):
    """A connection that carries one request at a time. is_closed: it can carry no more. since:
    when it was made, or the last response arrived. until: deadline of the current response."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.is_closed = False
        self.since = self._loop.time()
        self.until = math.inf
        self._transport: asyncio.Transport | None = None
        self._parser = ResponseParser()
        self._waiting: asyncio.Future[Any] | None = None
        self._stream: ResponseStream | None = None

    def ask(self, data: bytes, until: float) -> asyncio.Future[ApiResponse]:
        """Send a request; returns its response, raises OSError or TimeoutError. until: deadline by
        the clock of the loop."""
        return self._ask(data, until, ResponseParser())

    def ask_for_all(self, data: bytes, until: float) -> asyncio.Future[ApiResponse]:
        """The same for a response of any length."""
        return self._ask(data, until, ResponseParser(math.inf))

    def ask_for_stream(self, data: bytes) -> asyncio.Future[ApiResponse | ResponseStream]:
        """The same for a response that is read as it arrives if its status is 200."""
        return self._ask(data, math.inf, StreamParser())

    def _ask(self, data: bytes, until: float, parser: ResponseParser) -> asyncio.Future[Any]:
        assert self._transport is not None
        self._parser = parser
        waiting = self._waiting = self._loop.create_future()
        self.until = until
        if self.is_closed:
            # Bytes that are written now would be lost without an error.
            self._fail(ConnectionError(SERVER_CLOSED_TEXT))
        else:
            self._transport.write(data)
        return waiting

    @property
    def tls_session(self) -> ssl.SSLSession | None:
        """The session that this connection has begun, which others can resume; None for none."""
        transport = self._transport
        found = None if transport is None else transport.get_extra_info("ssl_session")
        return found if found is not None and found.has_ticket else None

    def give_up(self, problem: Exception) -> None:
        """Stop waiting for the response, or for more of it."""
        self._fail(problem)

    def abort(self) -> None:
        """Close the connection at once."""
        self.is_closed = True
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end(ConnectionError(CLIENT_CLOSED_TEXT))
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_streaming(self) -> bool:
        """True until the stream of the last request has ended."""
        return self._stream is not None

    # asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        made = transport.get_extra_info("socket")
        if made is not None:
            enable_keepalive(made)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None and self._stream is None:
            # No request is pending: the server closes the connection.
            self.abort()
            return
        try:
            answer = self._parser.feed(data)
        except MalformedResponse as problem:
            self._fail(ConnectionError(str(problem)))
            return
        if isinstance(self._parser, StreamParser) and self._parser.is_streamed:
            self._streamed(self._parser, answer)
        elif answer is not None:
            self._answered(answer)

    def _streamed(self, parser: StreamParser, answer: ApiResponse | None) -> None:
        """A part of a stream has arrived. answer: the end of the stream."""
        if self._stream is None:
            waiting, self._waiting = self._waiting, None
            assert self._transport is not None
            self._stream = ResponseStream(self._transport)
            if waiting is not None and not waiting.done():
                waiting.set_result(self._stream)
        self._stream.feed(parser.take() if answer is None else answer.body)
        if answer is not None:
            self._end_stream()

    def _end_stream(self, problem: Exception | None = None) -> None:
        stream, self._stream = self._stream, None
        self.since = self._loop.time()
        if problem is not None or not self._parser.keep_alive:
            self.abort()
        if stream is not None:
            stream.end(problem)

    def connection_lost(self, problem: Exception | None) -> None:
        self.is_closed = True
        if self._stream is not None:
            answer = self._parser.ended()
            if answer is not None and problem is None:
                self._stream.feed(answer.body)
                self._end_stream()
            else:
                self._end_stream(problem or ConnectionError(SERVER_CLOSED_TEXT))
            return
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
        if self._stream is not None:
            self._end_stream(problem)
            return
        waiting, self._waiting = self._waiting, None
        self.abort()
        if waiting is None or waiting.done():
            return
        status = self._parser.status
        if status and not isinstance(self._parser, StreamParser):
            # The head has arrived: the outcome of the write is known.
            fault = f"response truncated: {exception_text(problem)}"
            waiting.set_result(ApiResponse(status, fault=fault))
        else:
            waiting.set_exception(problem)


class ConnectionPool:
    """Connections to one server, opened on demand, at most `most` in use at once."""

    def __init__(
        self, server: str, trust: ssl.SSLContext | None, server_name: str, agent: str, most: int
    ) -> None:
        """trust: TLS settings, None for plain HTTP. server_name: expected in the certificate, ""
        for the host."""
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
        # A server on this machine would compress lists for nothing.
        self._accepted = "" if is_loopback(self._host) else f"Accept-Encoding: {ENCODING}\r\n"
        self._idle: deque[HttpConnection] = deque()
        self._busy: set[HttpConnection] = set()
        self._streams: set[HttpConnection] = set()
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._free = asyncio.Semaphore(most)
        self._n_opening = 0
        # Requests that wait for a connection to become idle, or for their turn to open one.
        self._turns: deque[asyncio.Future[None]] = deque()
        self._latest: HttpConnection | None = None
        self._tls_session: ssl.SSLSession | None = None
        self._is_closed = False

    async def send(
        self, request: ApiRequest, headers: list[tuple[str, str]], write_check: WriteCheck
    ) -> ApiResponse:
        """Send a request. headers: credentials. write_check: called last, directly before the bytes
        are sent. Raises LeaseExpired, OSError, TimeoutError."""
        data = self._encode_request(request, headers)
        async with self._free:
            timeout_s = math.inf if request.timeout_s is None else request.timeout_s
            until = asyncio.get_running_loop().time() + timeout_s
            while True:
                async with asyncio.timeout_at(None if math.isinf(until) else until):
                    connection, is_kept = await self._connection()
                if not write_check():
                    self._release(connection)
                    raise LeaseExpired(LEASE_EXPIRED_TEXT)
                if request.is_write:
                    waiting = connection.ask(data, until)
                else:
                    waiting = connection.ask_for_all(data, until)
                try:
                    return await self._answer_of(connection, waiting)
                except ConnectionError:
                    # The server may have closed the connection before the request arrived.
                    if not is_kept or request.is_write:
                        raise

    async def _answer_of(
        self, connection: HttpConnection, waiting: asyncio.Future[ApiResponse]
    ) -> ApiResponse:
        self._busy.add(connection)
        if self._expiry_timer is None:
            self._expire_requests()
        try:
            answer = await waiting
        except BaseException:
            # A late response would be taken for that of the next request.
            connection.abort()
            raise
        finally:
            self._busy.discard(connection)
        self._release(connection)
        return answer

    @contextlib.asynccontextmanager
    async def stream(
        self, request: ApiRequest, headers: list[tuple[str, str]]
    ) -> AsyncIterator[ApiResponse | BodyReader]:
        """Send a request whose response is read as it arrives, or any other response than one of
        status 200. Raises OSError and TimeoutError, here and when it is read."""
        data = self._encode_request(request, headers)
        while True:
            connection, is_kept = await self._connection()
            if self._is_closed:
                connection.abort()
                raise ConnectionError(CLIENT_CLOSED_TEXT)
            self._streams.add(connection)
            try:
                found = await connection.ask_for_stream(data)
            except ConnectionError:
                self._drop_stream(connection)
                if not is_kept:
                    raise
            except BaseException:
                self._drop_stream(connection)
                raise
            else:
                break
        try:
            yield found
        finally:
            if connection.is_streaming:
                self._drop_stream(connection)
            else:
                self._streams.discard(connection)
                self._release(connection)

    def _drop_stream(self, connection: HttpConnection) -> None:
        self._streams.discard(connection)
        connection.abort()

    async def close(self) -> None:
        """Close all connections and streams, others in use when their request has ended."""
        self._is_closed = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
        for connection in list(self._streams):
            connection.give_up(ConnectionError(CLIENT_CLOSED_TEXT))
        # They close in the next iteration of the loop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _encode_request(self, request: ApiRequest, headers: list[tuple[str, str]]) -> bytes:
        more = "".join(f"{name}: {value}\r\n" for name, value in headers)
        if more.count("\n") != len(headers) or more.count("\r") != len(headers):
            raise ConnectionError("header value contains a line break")
        kind = f"Content-Type: {request.content_type}\r\n" if request.content_type else ""
        length = f"Content-Length: {len(request.body)}\r\n" if request.is_write else self._accepted
        head = (
            f"{request.method} {self._root}{request.target} HTTP/1.1\r\n{self._head}{more}{kind}"
            f"{length}\r\n"
        )
        return head.encode() + request.body

    def _expire_requests(self) -> None:
        """Time out requests: one timer for all, because hardly any expires."""
        loop = asyncio.get_running_loop()
        self._expiry_timer = None
        if self._busy:
            now = loop.time()
            for connection in [connection for connection in self._busy if connection.until <= now]:
                connection.give_up(TimeoutError())
            self._expiry_timer = loop.call_later(TIMEOUT_POLL_S, self._expire_requests)

    def _take_idle(self) -> HttpConnection | None:
        """The most recently used connection: the server is least likely to have closed it."""
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
            self._next_turn()

    async def _connection(self) -> tuple[HttpConnection, bool]:
        """A connection for one request, and whether it has served another: an idle one, or a new
        one when fewer than OPENING_MAX are being opened. Raises ConnectFailed and TimeoutError."""
        kept = self._take_idle()
        while kept is None and self._n_opening >= OPENING_MAX:
            turn = asyncio.get_running_loop().create_future()
            self._turns.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._next_turn()
                raise
            kept = self._take_idle()
        if kept is not None:
            if self._n_opening < OPENING_MAX:
                self._next_turn()
            return kept, True
        return await self._open(), False

    def _next_turn(self) -> None:
        """Have the request that has waited longest look for a connection."""
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def _open(self) -> HttpConnection:
        """A new connection. Raises ConnectFailed and TimeoutError."""
        self._n_opening += 1
        try:
            connection = self._latest = await self._connect(CONNECT_S)
        except TimeoutError:
            raise
        except OSError as problem:
            raise ConnectFailed(self._host, self._port, problem) from problem
        finally:
            self._n_opening -= 1
            self._next_turn()
        return connection

    def _resumable_session(self) -> ssl.SSLSession | None:
        """The session of an earlier connection, which spares both sides the certificates and their
        signatures. A server that does not know it makes a new one."""
        found = None if self._latest is None else self._latest.tls_session
        if found is not None:
            self._tls_session = found
        return self._tls_session

    async def _connect(self, limit_s: float) -> HttpConnection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(limit_s):
            found = _literal_address(self._host, self._port) or await loop.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM
            )
            # Not by create_connection: it leaks a socket when it is cancelled between two
            # addresses.
            made = await start_connection(
                found, happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY_S, loop=loop
            )
            if self._trust is not None and self._name is not None:
                connection = HttpConnection()
                session = self._resumable_session()
                await connect_tls(made, self._trust, self._name, connection, session)
                return connection
            try:
                _, connection = await loop.create_connection(HttpConnection, sock=made)
            except BaseException:
                shut_down_socket(made)
                raise
        return connection


def _literal_address(host: str, port: int) -> list[Any]:
    """What `getaddrinfo` returns for an address, without the thread that it takes; empty for a
    name, and for an address with a scope."""
    try:
        is_ipv4 = ip_address(host).version == IPV4
    except ValueError:
        return []
    if "%" in host:
        return []
    if is_ipv4:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
    place = (host, port, 0, 0)
    return [(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", place)]


def enable_keepalive(made: Any) -> None:
    """Enable TCP keepalive: a dead peer is noticed within half a minute."""
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
    """Shut down and close the socket of a transport, which a TLS transport that is closed before
    its handshake does not do itself."""
    with contextlib.suppress(OSError):
        made.shutdown(socket.SHUT_RDWR)


def exception_text(problem: BaseException) -> str:
    """Text of an exception."""
    text = str(problem)
    if isinstance(problem, TimeoutError):
        return text or "request timed out"
    return text or type(problem).__name__
