"""API client: sends requests to an API server and reads its responses. Network errors are not
raised: a response without a status describes them.

The write check (leadership) is asked as late as possible: when a connection is ready, directly
before the bytes are sent. So a process that was paused and resumes after another scheduler has
become leader writes nothing.

Writes use the short path (`connection_pool`); reads, and everything through a proxy, use aiohttp.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import Any
from weakref import WeakSet

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection as Wire
from multidict import CIMultiDict
from yarl import URL

from stowplan._version import __version__
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import ApiResponse, parse_retry_after
from stowplan.driver.client.connection_pool import (
    CONNECT_S,
    IDLE_S,
    LEASE_EXPIRED_TEXT,
    ConnectionPool,
    LeaseExpired,
    WriteCheck,
    enable_keepalive,
    exception_text,
    shut_down_socket,
)
from stowplan.driver.client.credentials import CredentialError, Credentials, proxy_of

USER_AGENT = f"stowplan/{__version__}"
CONNECTIONS_MAX = 256
STREAM_CHUNK_BYTES = 1 << 16
CLOSING_ROUNDS = 5


class _GuardedClientRequest(ClientRequest):
    """A request that asks the write check before it is sent. transports: of all connections."""

    write_check: WriteCheck = staticmethod(lambda: True)
    transports: WeakSet[asyncio.Transport] = WeakSet()

    async def send(self, conn: Wire) -> Any:
        if conn.transport is not None:
            self.transports.add(conn.transport)
        if self.method != "GET" and not self.write_check():
            raise LeaseExpired(LEASE_EXPIRED_TEXT)
        return await super().send(conn)

    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: Wire, content_length: int | None = None
    ) -> None:
        if self.method != "GET" and not self.write_check():
            # aiohttp sends the headers with the body, so nothing has been sent yet.
            if conn.protocol is not None:
                conn.protocol.set_exception(LeaseExpired(LEASE_EXPIRED_TEXT))
                conn.protocol.close()
            return
        await super().write_bytes(writer, conn, content_length)


def _guarded(
    write_check: WriteCheck, transports: WeakSet[asyncio.Transport]
) -> type[ClientRequest]:
    found = {"write_check": staticmethod(write_check), "transports": transports}
    return type("GuardedRequest", (_GuardedClientRequest,), found)


class ApiClient:
    """Client of one server for one event loop. n_sent: number of requests by method and status."""

    def __init__(self, client_config: ClientConfig, write_check: WriteCheck = lambda: True) -> None:
        """write_check: whether writing is allowed; called directly before each write is sent."""
        self.client_config = client_config
        self.credentials = Credentials(client_config)
        self.n_sent: dict[tuple[str, int], int] = {}
        self._write_check = write_check
        self._session: aiohttp.ClientSession | None = None
        self._pool: ConnectionPool | None = None
        self._transports: WeakSet[asyncio.Transport] = WeakSet()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._proxy = proxy_of(client_config)
        self._opening = asyncio.Lock()
        self._certificate = ""

    async def __aenter__(self) -> ApiClient:
        await self._opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _opened(self) -> aiohttp.ClientSession:
        async with self._opening:
            return self._session or await self._open()

    async def _open(self) -> aiohttp.ClientSession:
        trust = await self.credentials.trust()
        self._certificate = self.credentials.certificate
        client_config = self.client_config
        if self._proxy is None:
            self._pool = ConnectionPool(
                client_config.server, trust, client_config.server_name, USER_AGENT, CONNECTIONS_MAX
            )
        connector = aiohttp.TCPConnector(
            limit=CONNECTIONS_MAX,
            ssl=True if trust is None else trust,
            socket_factory=self._socket,
            keepalive_timeout=IDLE_S,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            request_class=_guarded(self._write_check, self._transports),
            headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
            auto_decompress=True,
            read_bufsize=STREAM_CHUNK_BYTES,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self._session

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        lines, self._pool = self._pool, None
        if lines is not None:
            await lines.close()
        if session is not None:
            await session.close()
            await self._abort_dropped()

    async def _abort_dropped(self) -> None:
        """Abort connections that the session has dropped: an abandoned watch waits for the server's
        close_notify, and would stay open if the event loop ends first."""
        for transport in list(self._transports):
            transport.abort()
        for made in list(self._sockets):
            shut_down_socket(made)
        # TLS and then its socket close in the next iterations of the loop.
        for _ in range(CLOSING_ROUNDS):
            await asyncio.sleep(0)

    def _socket(self, address: Any) -> socket.socket:
        """A socket with TCP keepalive."""
        family, kind, protocol, _, _ = address
        made = socket.socket(family=family, type=kind, proto=protocol)
        enable_keepalive(made)
        self._sockets.add(made)
        return made

    async def send(self, request: ApiRequest) -> ApiResponse:
        """Send a request; a response without a status says why there is none."""
        try:
            sent = await self._current_credentials()
        except CredentialError as problem:
            self._count(request, 0)
            return ApiResponse(0, fault=exception_text(problem))
        answer = await self._send(request)
        if answer.status == 401 and self.credentials.is_changing:
            await self._renew_credentials(sent)
            answer = await self._send(request)
        self._count(request, answer.status)
        return answer

    async def _current_credentials(self) -> int:
        """The version of the credentials that the next request is sent with; raises
        CredentialError."""
        if self.credentials.is_changing:
            await self.credentials.headers()
        return self.credentials.version

    def _count(self, request: ApiRequest, status: int) -> None:
        key = (request.method, status)
        self.n_sent[key] = self.n_sent.get(key, 0) + 1

    async def _renew_credentials(self, rejected: int) -> None:
        """Renew credentials that the server rejected. An exec plugin may return a new certificate,
        which needs new connections; of many requests that are rejected at once, one reconnects.
        rejected: version of the credentials."""
        self.credentials.forget(rejected)
        if self.client_config.run is None or not self.client_config.server.startswith("https:"):
            return
        async with self._opening:
            with contextlib.suppress(CredentialError):
                if (await self.credentials.credential()).certificate == self._certificate:
                    return
                old, lines = self._session, self._pool
                await self._open()
                if lines is not None:
                    await lines.close()
                if old is not None:
                    await old.close()

    async def _send(self, request: ApiRequest) -> ApiResponse:
        try:
            if request.is_write and (lines := await self._send_pooled()) is not None:
                headers = await self.credentials.headers()
                return await lines.send(request, headers, self._write_check)
            async with await self._request_kwargs(request) as response:
                try:
                    body = await response.read()
                except (aiohttp.ClientError, TimeoutError, OSError) as problem:
                    return _truncated_response(request, response.status, problem)
                return ApiResponse(
                    response.status,
                    body,
                    parse_retry_after(response.headers.get("Retry-After")),
                    response.content_type,
                )
        except LeaseExpired as held:
            return ApiResponse(0, fault=str(held))
        except (aiohttp.ClientError, TimeoutError, OSError, CredentialError) as problem:
            return ApiResponse(0, fault=exception_text(problem))

    async def _send_pooled(self) -> ConnectionPool | None:
        if self._session is None:
            await self._opened()
        return self._pool

    async def _request_kwargs(
        self, request: ApiRequest
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        session = self._session or await self._opened()
        headers: CIMultiDict[str] = CIMultiDict(await self.credentials.headers())
        if request.content_type:
            headers["Content-Type"] = request.content_type
        return session.request(
            request.method,
            URL(self.client_config.server + request.target, encoded=True),
            data=request.body or None,
            headers=headers,
            timeout=_timeout(request.timeout_s),
            proxy=self._proxy,
            allow_redirects=False,
            server_hostname=self.client_config.server_name or None,
        )

    @contextlib.asynccontextmanager
    async def stream(
        self, request: ApiRequest
    ) -> AsyncIterator[ApiResponse | aiohttp.StreamReader]:
        """Start a watch: a stream of bytes, or the response that refuses it. Reading raises
        aiohttp.ClientError, TimeoutError or OSError when the stream breaks."""
        answer: ApiResponse | None = None
        sent = 0
        try:
            sent = await self._current_credentials()
            async with await self._request_kwargs(request) as response:
                self._count(request, response.status)
                if response.status == 200:
                    yield response.content
                    return
                body = await response.read()
                answer = ApiResponse(
                    response.status,
                    body,
                    parse_retry_after(response.headers.get("Retry-After")),
                    response.content_type,
                )
        except CredentialError as problem:
            answer = ApiResponse(0, fault=exception_text(problem))
        if answer is not None:
            if answer.status == 401 and self.credentials.is_changing:
                await self._renew_credentials(sent)
            yield answer


@cache
def _timeout(seconds: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_S)


def _truncated_response(request: ApiRequest, status: int, problem: Exception) -> ApiResponse:
    """A response whose body is incomplete: the outcome of a write is known by its status; data that
    was to be read is missing."""
    fault = f"response truncated: {exception_text(problem)}"
    if request.method == "GET":
        return ApiResponse(0, fault=fault)
    return ApiResponse(status, fault=fault)
