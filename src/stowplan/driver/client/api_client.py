"""API client: sends requests to an API server and reads its responses. Network errors are not
raised: a response without a status describes them.

The write check (leadership) is asked as late as possible: when a connection is ready, directly
before the bytes are sent. So a process that was paused and resumes after another scheduler has
become leader writes nothing.

Requests use kept connections (`connection_pool`), through a proxy aiohttp (`proxied_session`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from stowplan._version import __version__
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import ApiResponse
from stowplan.driver.client.connection_pool import (
    CONNECTIONS_MAX,
    LEASE_EXPIRED_TEXT,
    BodyReader,
    ConnectFailed,
    ConnectionPool,
    LeaseExpired,
    WriteCheck,
    exception_text,
)
from stowplan.driver.client.credentials import CredentialError, Credentials, proxy_of

if TYPE_CHECKING:
    from stowplan.driver.client.proxied_session import ProxiedSession

__all__ = ["LEASE_EXPIRED_TEXT", "ApiClient"]

USER_AGENT = f"stowplan/{__version__}"


class ApiClient:
    """Client of one server for one event loop. n_sent: number of requests by method and status."""

    def __init__(self, client_config: ClientConfig, write_check: WriteCheck = lambda: True) -> None:
        """write_check: whether writing is allowed; called directly before each write is sent."""
        self.client_config = client_config
        self.credentials = Credentials(client_config)
        self.n_sent: dict[tuple[str, int], int] = {}
        self._write_check = write_check
        self._sender: ConnectionPool | ProxiedSession | None = None
        self._proxy = proxy_of(client_config)
        self._opening = asyncio.Lock()
        self._certificate = ""

    async def __aenter__(self) -> ApiClient:
        await self._opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _opened(self) -> ConnectionPool | ProxiedSession:
        async with self._opening:
            return self._sender or await self._open()

    async def _open(self) -> ConnectionPool | ProxiedSession:
        trust = await self.credentials.trust()
        self._certificate = self.credentials.certificate
        client_config = self.client_config
        if self._proxy is None:
            self._sender = ConnectionPool(
                client_config.server, trust, client_config.server_name, USER_AGENT, CONNECTIONS_MAX
            )
        else:
            # Imported here: it takes long.
            from stowplan.driver.client.proxied_session import ProxiedSession

            self._sender = ProxiedSession(
                client_config, trust, self._proxy, USER_AGENT, self._write_check
            )
        return self._sender

    async def close(self) -> None:
        """Close all connections."""
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.close()

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
                old = self._sender
                await self._open()
                if old is not None:
                    await old.close()

    async def _send(self, request: ApiRequest) -> ApiResponse:
        try:
            sender = self._sender or await self._opened()
            headers = await self.credentials.headers()
            if isinstance(sender, ConnectionPool):
                check = self._write_check if request.is_write else _allowed
                answer = await sender.send(request, headers, check)
            else:
                answer = await sender.send(request, headers)
        except LeaseExpired as held:
            return ApiResponse(0, fault=str(held))
        except ConnectFailed as problem:
            cause = problem.cause if request.is_write else problem
            return ApiResponse(0, fault=exception_text(cause))
        except (OSError, CredentialError) as problem:
            return ApiResponse(0, fault=exception_text(problem))
        if answer.fault and not request.is_write:
            # Data that was to be read is missing; the outcome of a write is known by its status.
            return ApiResponse(0, fault=answer.fault)
        return answer

    @contextlib.asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[ApiResponse | BodyReader]:
        """Start a watch: a stream of bytes, or the response that refuses it. Raises OSError, also
        when it is read and the stream breaks."""
        answer: ApiResponse | None = None
        sent = 0
        try:
            sent = await self._current_credentials()
            sender = self._sender or await self._opened()
            headers = await self.credentials.headers()
        except CredentialError as problem:
            answer = ApiResponse(0, fault=exception_text(problem))
        else:
            async with sender.stream(request, headers) as found:
                self._count(request, found.status if isinstance(found, ApiResponse) else 200)
                if not isinstance(found, ApiResponse):
                    yield found
                    return
                answer = found
        if answer.status == 401 and self.credentials.is_changing:
            await self._renew_credentials(sent)
        yield answer


def _allowed() -> bool:
    """The write check of a read."""
    return True
