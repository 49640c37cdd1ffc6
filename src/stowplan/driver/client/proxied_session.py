"""Requests through a proxy, by aiohttp. Its errors are raised as OSError.

A module of its own: importing aiohttp takes a sixth of a second of processor time, and most
clusters are reached without a proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any
from weakref import WeakSet

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection as Wire
from multidict import CIMultiDict
from yarl import URL

from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import ApiResponse, parse_retry_after
from stowplan.driver.client.connection_pool import (
    CONNECT_S,
    CONNECTIONS_MAX,
    IDLE_S,
    LEASE_EXPIRED_TEXT,
    BodyReader,
    LeaseExpired,
    WriteCheck,
    enable_keepalive,
    exception_text,
    shut_down_socket,
)

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


class ProxiedSession:
    """Connections to one server through a proxy, for one event loop; as a `ConnectionPool` has
    them."""

    def __init__(
        self,
        client_config: ClientConfig,
        trust: ssl.SSLContext | None,
        proxy: str,
        agent: str,
        write_check: WriteCheck,
    ) -> None:
        """trust: TLS settings, None for plain HTTP. proxy: its URL. write_check: called directly
        before a write is sent."""
        self._client_config = client_config
        self._proxy = proxy
        self._transports: WeakSet[asyncio.Transport] = WeakSet()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        connector = aiohttp.TCPConnector(
            limit=CONNECTIONS_MAX,
            ssl=True if trust is None else trust,
            socket_factory=self._socket,
            keepalive_timeout=IDLE_S,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            request_class=_guarded(write_check, self._transports),
            headers={"User-Agent": agent, "Accept": "application/json"},
            auto_decompress=True,
            read_bufsize=STREAM_CHUNK_BYTES,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
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

    async def send(self, request: ApiRequest, headers: list[tuple[str, str]]) -> ApiResponse:
        """Send a request. headers: credentials. Raises LeaseExpired and OSError."""
        with _as_os_error():
            async with self._requested(request, headers) as response:
                try:
                    body = await response.read()
                except (aiohttp.ClientError, TimeoutError, OSError) as problem:
                    fault = f"response truncated: {exception_text(problem)}"
                    return ApiResponse(response.status, fault=fault)
                return _response(response, body)

    @contextlib.asynccontextmanager
    async def stream(
        self, request: ApiRequest, headers: list[tuple[str, str]]
    ) -> AsyncIterator[ApiResponse | BodyReader]:
        """Send a request whose response is read as it arrives, or any other response than one of
        status 200. Raises OSError, here and when it is read."""
        with _as_os_error():
            async with self._requested(request, headers) as response:
                if response.status == 200:
                    yield _ProxiedStream(response.content)
                else:
                    yield _response(response, await response.read())

    def _requested(
        self, request: ApiRequest, credentials: list[tuple[str, str]]
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        headers: CIMultiDict[str] = CIMultiDict(credentials)
        if request.content_type:
            headers["Content-Type"] = request.content_type
        return self._session.request(
            request.method,
            URL(self._client_config.server + request.target, encoded=True),
            data=request.body or None,
            headers=headers,
            timeout=_timeout(request.timeout_s),
            proxy=self._proxy,
            allow_redirects=False,
            server_hostname=self._client_config.server_name or None,
        )


class _ProxiedStream:
    """A `BodyReader` of aiohttp."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    async def readany(self) -> bytes:
        with _as_os_error():
            return await self._content.readany()

    async def leave_unread(self, seconds: float) -> None:
        """See `BodyReader`; the library reads ahead of it."""
        await asyncio.sleep(seconds)


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    """Raise aiohttp's errors as ConnectionError or TimeoutError with the same text."""
    try:
        yield
    except (TimeoutError, OSError):
        raise
    except aiohttp.ClientError as problem:
        raise ConnectionError(exception_text(problem)) from problem


def _response(response: aiohttp.ClientResponse, body: bytes) -> ApiResponse:
    retry_after = parse_retry_after(response.headers.get("Retry-After"))
    return ApiResponse(response.status, body, retry_after, response.content_type)


@cache
def _timeout(seconds: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_S)
