"""HTTP server of an embedded cluster: sockets, limits, compression, streams.

Bounds: a body over the limit is refused before it is read into memory, all bodies in progress
together are bounded too, a client that sends or reads too slowly is disconnected, and a slow
watcher is not waited for: the server drops it once it is too far behind.
"""

from __future__ import annotations

import asyncio
import errno
import gzip
import logging
import socket
import ssl
from collections.abc import Awaitable, Coroutine, Mapping
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec
from aiohttp import HttpVersion11, web
from multidict import CIMultiDict

from stowplan.apis.machinery.errors import ApiError, too_many_requests
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, WatchResponse
from stowplan.apiserver.auth.flow_control import TOO_MANY_REQUESTS
from stowplan.apiserver.http.deferred_work import PendingRequest
from stowplan.driver.background_tasks import BackgroundTasks
from stowplan.driver.http.fast_path import FastPathConnection, SimpleRequest, merged_headers
from stowplan.driver.http.idle_connections import IdleConnections, connections_max
from stowplan.driver.http.server_loop import ServerLoop
from stowplan.driver.storage.sqlite_store import StoreError

GZIP_BYTES_MIN = 128 << 10
_THREAD_BYTES_MIN = 1 << 20
_BYTES_PER_S_MIN = 1 << 20
_SHORT_BYTES = 1 << 15
_HEADS_MAX, _HEAD_BYTES_MAX = 256, 512
_HANDSHAKE_POLL_S = 0.02
_UNSAVED = b"the write could not be saved\n"
_LINE_BYTES_MAX = 1 << 15
# Over TLS the tickets of a new session are sent with the next data.
_TICKETS_BYTES_MAX = 1 << 12
_BODILESS = (204, 304)
_REASONS = {status.value: status.phrase for status in HTTPStatus}
_HANDSHAKE = b"\x16"  # First byte of a TLS connection.
SERVER = "stowplan"


class ServerLimits(msgspec.Struct, frozen=True):
    """Limits of one server. body_bytes_max: of one body; bodies_bytes_max: of all in progress.

    body_s: for a whole body to arrive. send_s: for a client to read a response. idle_s: for the
    next request line and headers. stop_s: for requests in progress at shutdown. connections_max:
    lower if the process may open fewer files; beyond it idle connections are closed.
    """

    body_bytes_max: int = 3 << 20
    bodies_bytes_max: int = 256 << 20
    body_s: float = 30.0
    send_s: float = 30.0
    idle_s: float = 90.0
    stop_s: float = 2.0
    connections_max: int = 10_000


class ServerTls(NamedTuple):
    """TLS settings: whether connections may be encrypted, and whether they may be plain. Both share
    the port."""

    context: ssl.SSLContext | None
    plain: bool


PLAIN_ONLY = ServerTls(None, plain=True)


def listening_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0: chosen by the system. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=1024)
    listener.setblocking(False)
    return listener


class _AlreadySent(web.StreamResponse):
    """Returned by a handler whose response is already sent; the connection stays open."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Nothing to do."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing to do."""

    @property
    def keep_alive(self) -> bool:
        """True: only responses of connections that stay open are sent at once."""
        return True


_SENT = _AlreadySent()


class HttpServer:
    """Serves a cluster on one address."""

    def __init__(self, server_loop: ServerLoop, bounds: ServerLimits | None = None) -> None:
        self.server_loop = server_loop
        self.bounds = bounds or ServerLimits()
        self._bodies_bytes = 0
        self._idle = IdleConnections()
        self._connections_max = connections_max(self.bounds.connections_max)
        self._server: web.Server | None = None
        self._listener: socket.socket | None = None
        self._tasks: BackgroundTasks | None = None
        self._acceptor: asyncio.Task[None] | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._fast_path_connections: set[FastPathConnection] = set()
        self._delayed_responses: set[asyncio.Task[None]] = set()
        self._date_second = 0
        self._date_bytes = b""
        self._heads: dict[tuple[int, tuple[tuple[str, str], ...]], bytes] = {}

    async def start(
        self, listener: socket.socket, tasks: BackgroundTasks, tls: ServerTls = PLAIN_ONLY
    ) -> None:
        """Accept connections on a listening socket, which `stop` closes. tasks: for connections
        and responses; it ends after `stop`."""
        # The library logs errors of clients; the server loop logs ours.
        quiet = logging.getLogger("stowplan.http.library")
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        self._server = web.Server(
            self._serve,
            access_log=None,
            logger=quiet,
            handler_cancellation=True,
            keepalive_timeout=self.bounds.idle_s,
            lingering_time=min(self.bounds.body_s, 2.0),
            auto_decompress=False,
            max_line_size=_LINE_BYTES_MAX,
            max_field_size=_LINE_BYTES_MAX,
        )
        self._listener = listener
        self._tasks = tasks
        self._acceptor = tasks.start(self._accept(tls, tasks), "HTTP accept")
        self.server_loop.start()

    async def stop(self) -> None:
        """Finish requests in progress, commit, close all connections."""
        if self._acceptor is not None:
            self._acceptor.cancel()
        if self._listener is not None:
            self._listener.close()
        await self.server_loop.stop()
        if self._delayed_responses:
            await asyncio.wait(self._delayed_responses, timeout=self.bounds.stop_s)
        for connection in list(self._fast_path_connections):
            if connection.transport is not None:
                connection.transport.close()
        if self._server is not None:
            self._server.pre_shutdown()
            await self._server.shutdown(self.bounds.stop_s)
        for task in list(self._handshakes):
            task.cancel()

    # Connections.

    @property
    def n_connections(self) -> int:
        """Number of open connections."""
        general = len(self._server.connections) if self._server is not None else 0
        return general + len(self._fast_path_connections) + len(self._handshakes)

    async def _accept(self, tls: ServerTls, tasks: BackgroundTasks) -> None:
        loop = asyncio.get_running_loop()
        assert self._listener is not None
        assert self._server is not None
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError as problem:
                # The client has disconnected, or no file descriptor is free: go on.
                if problem.errno in (errno.EMFILE, errno.ENFILE):
                    self._idle.close_one()
                await asyncio.sleep(0.05)
                continue
            if self.n_connections >= self._connections_max and not self._idle.close_one():
                connection.close()
                continue
            task = tasks.start_independent(self._handshake(connection, tls), "HTTP handshake")
            self._handshakes.add(task)
            self._idle.mark_idle(task)
            task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, connection: socket.socket, tls: ServerTls) -> None:
        """Hand a connection to the HTTP protocol, over TLS if its first byte asks for it."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.bounds.idle_s):
                encrypted = await _first_byte(connection) == _HANDSHAKE
            if encrypted and tls.context is not None:
                await loop.connect_accepted_socket(
                    self._protocol,
                    connection,
                    ssl=tls.context,
                    ssl_handshake_timeout=self.bounds.body_s,
                )
            elif not encrypted and tls.plain:
                await loop.connect_accepted_socket(self._protocol, connection)
            else:
                connection.close()
        except (OSError, TimeoutError):
            # The client disconnected, was too slow, or does not trust the certificate.
            connection.close()
        except BaseException:
            connection.close()
            raise

    def _protocol(self) -> asyncio.Protocol:
        assert self._server is not None
        return FastPathConnection(
            self._server,
            self,
            self.bounds.idle_s,
            self._fast_path_connections,
            self._idle.mark_idle,
        )

    # The fast path: see `fast_path`.

    def try_fast_path(self, request: SimpleRequest, connection: FastPathConnection) -> bool:
        """See `fast_path.SimpleRequestHandler`."""
        transport = connection.transport
        assert transport is not None
        busy = transport.get_write_buffer_size() > _TICKETS_BYTES_MAX or transport.is_closing()
        length = len(request.body)
        refused = (
            length > self.bounds.body_bytes_max
            or self._bodies_bytes + length > self.bounds.bodies_bytes_max
        )
        if busy or refused or self.server_loop.stopping:
            return False
        peer = transport.get_extra_info("peername")
        asked = _wire_request(request.method, request.target, request.headers, request.body, peer)
        answer = self.server_loop.begin(asked)
        assert not isinstance(answer, WatchResponse)
        if isinstance(answer, HttpResponse) and len(answer.body) <= _SHORT_BYTES:
            if self.server_loop.is_due(answer):
                transport.write(self._response_bytes(answer))
                self._idle.mark_idle(transport, answer.status)
                return True
            if not answer.after:
                self._idle.mark_busy(transport)
                connection.hold()
                send = partial(self._send_committed, answer, connection)
                self.server_loop.when_saved(answer.commit, send)
                return True
        self._idle.mark_busy(transport)
        connection.hold()
        self._send_later(self._send_when_saved(answer, asked, connection))
        return True

    def _send_committed(
        self, answer: HttpResponse, connection: FastPathConnection, problem: StoreError | None
    ) -> None:
        """Send a short response whose write is committed, or cannot be."""
        transport = connection.transport
        if transport is None or transport.is_closing():
            return
        if problem is not None:
            self._send_unsaved(transport)
            return
        transport.write(self._response_bytes(answer))
        if transport.get_write_buffer_size() > 0:
            self._send_later(self._release_when_read(answer, connection))
            return
        self._idle.mark_idle(transport, answer.status)
        connection.release()

    def _send_later(self, sending: Coroutine[None, None, None]) -> None:
        assert self._tasks is not None
        task = self._tasks.start_independent(sending, "HTTP response")
        self._delayed_responses.add(task)
        task.add_done_callback(self._delayed_responses.discard)

    async def _send_when_saved(
        self,
        begun: HttpResponse | PendingRequest,
        asked: HttpRequest,
        connection: FastPathConnection,
    ) -> None:
        """Send a response when its write is committed, and wait until the client has read it."""
        transport = connection.transport
        if transport is None:
            return
        try:
            answer = await self.server_loop.finish_pending(begun, asked)
            assert isinstance(answer, HttpResponse)
            await self.server_loop.finish(answer)
            transport.write(self._response_bytes(answer))
            await self._release_when_read(answer, connection)
        except StoreError:
            self._send_unsaved(transport)
        except Exception:
            # The client must not wait for a response that never comes.
            transport.abort()
            raise

    def _send_unsaved(self, transport: asyncio.Transport) -> None:
        """Send that it is unknown whether the write is committed; the client must check."""
        text = (("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close"))
        transport.write(self._response_bytes(HttpResponse(500, text, _UNSAVED)))
        transport.close()

    async def _release_when_read(
        self, answer: HttpResponse, connection: FastPathConnection
    ) -> None:
        """Wait until the client has read a response."""
        transport = connection.transport
        if transport is None:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.bounds.send_s + len(answer.body) / _BYTES_PER_S_MIN
        while transport.get_write_buffer_size() > 0 and not transport.is_closing():
            if loop.time() > deadline:
                transport.abort()
                return
            await asyncio.sleep(_HANDSHAKE_POLL_S)
        if not transport.is_closing():
            self._idle.mark_idle(transport, answer.status)
            connection.release()

    def _response_bytes(self, answer: HttpResponse) -> bytes:
        """A complete response as bytes."""
        key = answer.status, answer.headers
        begin = self._heads.get(key)
        if begin is None:
            fields = (f"{name}: {_header_value(value)}\r\n" for name, value in answer.headers)
            text = f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, '')}\r\n"
            begin = f"{text}{''.join(fields)}Content-Length: ".encode("utf-8", "surrogateescape")
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()
            if len(begin) <= _HEAD_BYTES_MAX:
                self._heads[key] = begin
        return b"%b%d%b%b" % (begin, len(answer.body), self._date(), answer.body)

    # Requests.

    async def _serve(self, raw: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._served(raw)
        except OSError:
            # The client has disconnected; the library handles that.
            raise
        # Any exception concerns this request only: it is logged, and others are served.
        except Exception as fault:  # noqa: BLE001
            return _closing(
                _plain(500, self.server_loop.logged_fault(f"{raw.method} {raw.path}", fault))
            )

    async def _served(self, raw: web.BaseRequest) -> web.StreamResponse:
        try:
            body = await self._body(raw)
        except ApiError as refused:
            # The rest of the body is not read, so the connection cannot be reused.
            return _closing(_refusal(refused))
        except web.RequestPayloadError:
            return _closing(_plain(400, "the body cannot be read"))
        except TimeoutError:
            return _closing(_plain(408, f"the body took more than {self.bounds.body_s:g} s"))
        if self.server_loop.stopping:
            return _closing(_plain(503, "the server is stopping"))
        transport, status = raw.transport, 500
        self._idle.mark_busy(transport)
        try:
            answer = await self.server_loop.ask(_wire_request_of(raw, body))
            status = answer.status
            if isinstance(answer, WatchResponse):
                return await self._stream(raw, answer)
            return await self._send_whole(raw, answer)
        except ApiError as refused:
            return _refusal(refused)
        except StoreError:
            # It is unknown whether the write is committed; the client must check.
            return _closing(_plain(500, _UNSAVED.decode().strip()))
        finally:
            self._idle.mark_idle(transport, status)

    async def _body(self, raw: web.BaseRequest) -> bytes:
        """Read the body. Raises ApiError 413 or 429 before more of it is read, TimeoutError."""
        if not raw.body_exists:
            return b""
        if (raw.content_length or 0) > self.bounds.body_bytes_max:
            raise self._too_large()
        if raw.headers.get("Expect", "").lower() == "100-continue":
            await raw.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            raw.writer.output_size = 0
        if raw.content.is_eof():
            # Short bodies arrive with the headers.
            body = raw.content.read_nowait()
            if len(body) > self.bounds.body_bytes_max:
                raise self._too_large()
            if self._bodies_bytes + len(body) > self.bounds.bodies_bytes_max:
                raise too_many_requests(TOO_MANY_REQUESTS, 1)
            return body
        parts = []
        length = 0
        try:
            async with asyncio.timeout(self.bounds.body_s):
                while part := await raw.content.readany():
                    length += len(part)
                    self._bodies_bytes += len(part)
                    if length > self.bounds.body_bytes_max:
                        raise self._too_large()
                    if self._bodies_bytes > self.bounds.bodies_bytes_max:
                        raise too_many_requests(TOO_MANY_REQUESTS, 1)
                    parts.append(part)
        finally:
            self._bodies_bytes -= length
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            "RequestEntityTooLarge",
            f"Request entity too large: limit is {self.bounds.body_bytes_max}",
        )

    # Answers.

    async def _send_whole(self, raw: web.BaseRequest, answer: HttpResponse) -> web.StreamResponse:
        if self._try_send_at_once(raw, answer):
            return _SENT
        headers = CIMultiDict(answer.headers)
        headers["Server"] = SERVER
        body = answer.body
        if len(body) >= GZIP_BYTES_MIN and _takes_gzip(raw) and "Content-Encoding" not in headers:
            body = await _compressed(body)
            headers["Content-Encoding"] = "gzip"
            headers["Vary"] = "Accept-Encoding"
        response = web.Response(status=answer.status, body=body, headers=headers)
        await self._sent(_full_response(response, raw), raw, len(body))
        return response

    def _try_send_at_once(self, raw: web.BaseRequest, answer: HttpResponse) -> bool:
        """Send an ordinary short response in one piece; False for any other.

        Nearly all responses are of this kind, and it takes half the time of the general path.
        """
        transport = raw.transport
        if (
            transport is None
            or len(answer.body) > _SHORT_BYTES
            or answer.status in _BODILESS
            or raw.method == "HEAD"
            or not raw.keep_alive
            or raw.version != HttpVersion11
            # The client has not read all earlier responses.
            or transport.get_write_buffer_size() > 0
        ):
            return False
        transport.write(self._response_bytes(answer))
        return True

    def _date(self) -> bytes:
        """The last headers, with the date, computed once a second."""
        second = int(self.server_loop.clock())
        if second != self._date_second:
            date = formatdate(second, usegmt=True)
            self._date_second = second
            self._date_bytes = f"\r\nDate: {date}\r\nServer: {SERVER}\r\n\r\n".encode()
        return self._date_bytes

    async def _stream(self, raw: web.BaseRequest, stream: WatchResponse) -> web.StreamResponse:
        headers = CIMultiDict(stream.headers)
        headers["Server"] = SERVER
        response = web.StreamResponse(status=stream.status, headers=headers)
        response.enable_chunked_encoding()
        try:
            taken = await self._sent(response.prepare(raw), raw)
            while taken and not self.server_loop.stopping:
                chunk = await self.server_loop.read(stream.number)
                if chunk.body:
                    taken = await self._sent(response.write(chunk.body), raw, len(chunk.body))
                if chunk.end:
                    break
            if taken:
                await self._sent(response.write_eof(), raw)
        finally:
            # Also when the client disconnects, which cancels this task.
            self.server_loop.close(stream.number)
        return response

    async def _sent(
        self, sending: Awaitable[object], raw: web.BaseRequest, length: int = 0
    ) -> bool:
        """Wait until the client has read the response; False if it took too long or disconnected.

        The connection is unusable then, and unsent data is dropped.
        """
        try:
            async with asyncio.timeout(self.bounds.send_s + length / _BYTES_PER_S_MIN):
                await sending
        except (TimeoutError, ConnectionError):
            if raw.transport is not None:
                raw.transport.abort()
            return False
        return True


async def _first_byte(connection: socket.socket) -> bytes:
    """The first byte that a client sends, left in the socket buffer; b"" if none."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK)


async def _full_response(response: web.Response, raw: web.BaseRequest) -> None:
    await response.prepare(raw)
    await response.write_eof()


def _wire_request_of(raw: web.BaseRequest, body: bytes) -> HttpRequest:
    """The request in the API server's form."""
    target = raw.raw_path
    if not target.startswith("/"):
        parts = urlsplit(target)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
    peer = raw.transport.get_extra_info("peername") if raw.transport else None
    headers = merged_headers((name.lower(), value) for name, value in raw.headers.items())
    return _wire_request(raw.method, target, headers, body, peer)


def _wire_request(
    method: str, target: str, headers: Mapping[str, str], body: bytes, peer: object
) -> HttpRequest:
    path, _, query = target.partition("?")
    asked = tuple(parse_qsl(query, keep_blank_values=True)) if query else ()
    peer_text = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else ""
    return HttpRequest(method, path, asked, headers, body, peer_text)


def _header_value(value: str) -> str:
    """A header value without line breaks, so that it cannot start another header."""
    return value.replace("\r", " ").replace("\n", " ")


def _takes_gzip(raw: web.BaseRequest) -> bool:
    """True if Accept-Encoding names gzip with a weight other than 0."""
    for each in raw.headers.get("Accept-Encoding", "").split(","):
        coding, *parameters = (part.strip() for part in each.split(";"))
        if coding == "gzip":
            return not any(text in ("q=0", "q=0.0", "q=0.00", "q=0.000") for text in parameters)
    return False


async def _compressed(body: bytes) -> bytes:
    """The body, compressed for speed rather than size; a long one without blocking the loop."""
    if len(body) < _THREAD_BYTES_MIN:
        return gzip.compress(body, 1, mtime=0)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, partial(gzip.compress, body, 1, mtime=0))


def _plain(status: int, text: str) -> web.Response:
    headers = {"Server": SERVER, "X-Content-Type-Options": "nosniff"}
    return web.Response(status=status, text=text + "\n", headers=headers)


def _refusal(refused: ApiError) -> web.Response:
    """An error response of the server itself, as the Status object that the API server would
    send."""
    headers = CIMultiDict(refused.headers)
    headers["Server"] = SERVER
    headers["Cache-Control"] = "no-cache, private"
    return web.Response(
        status=refused.code,
        body=msgspec.json.encode(refused.status()),
        content_type="application/json",
        headers=headers,
    )


def _closing(response: web.Response) -> web.Response:
    response.force_close()
    return response
