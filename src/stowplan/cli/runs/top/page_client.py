"""A client of the page's data API: the live connection, and single answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec

from stowplan.driver.client.credentials import client_tls_context, read_credential_file
from stowplan.objects.encoding.tree import Tree
from stowplan.web.model.page_state import InvalidFrame, PageState

API = "/api/page/v1"
TIMEOUT_S = 10.0
PAUSES_S = (0.25, 0.5, 1.0, 2.0, 3.0)


class PageUnreachable(RuntimeError):
    """The page does not answer, or not as a page does; the text is for the user."""


class PageRefusal(PageUnreachable):
    """The page answers with an error. status: of HTTP."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class PageClient:
    """Follows a page. state: what it has sent. problem: why nothing is received, "" while all is
    well. n_connected: times that it has connected."""

    def __init__(self, url: str, token: str = "", ca_file: str = "") -> None:
        """url: as the line `Web page:` prints it. Raises CredentialError."""
        self.url = url.rstrip("/")
        self.state = PageState()
        self.problem = ""
        self.n_connected = 0
        self._topics: tuple[str, ...] = ("status",)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._context: Any = True
        if ca_file:
            authority = read_credential_file(ca_file, url, "--ca-file")
            self._context = client_tls_context(authority, b"", b"", ca_file)
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None

    async def get(self, path: str, **query: str) -> Tree:
        """An answer of the API. Raises PageUnreachable, and PageRefusal of it."""
        try:
            async with self._opened().get(
                f"{self.url}{API}/{path}", params=query, ssl=self._context
            ) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise PageUnreachable(_text(self.url, problem)) from None
        try:
            tree: Tree = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.MsgspecError:
            raise PageUnreachable(f"{self.url}: unexpected response; is it a page?") from None
        if answer.status != 200:
            raise PageRefusal(str(tree.get("error", answer.status)), answer.status)
        return tree

    async def subscribe(self, *topics: str) -> None:
        """Follow exactly these topics from now on."""
        self._topics = topics
        if self._socket is not None and not self._socket.closed:
            with contextlib.suppress(ConnectionError):
                await self._socket.send_json({"topics": topics})

    async def follow(self, changed: Callable[[], None]) -> None:
        """Receive until cancelled, and connect again with growing pauses. changed: called after
        each frame and each problem."""
        failures = 0
        while True:
            before = self.n_connected
            try:
                await self._receive(changed)
                self.problem = f"{self.url} has closed the connection"
            except (aiohttp.ClientError, TimeoutError, OSError, InvalidFrame) as problem:
                self.problem = _text(self.url, problem)
            failures = 0 if self.n_connected > before else failures + 1
            changed()
            await asyncio.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])

    async def _receive(self, changed: Callable[[], None]) -> None:
        url = f"{self.url}{API}/live?topics={','.join(self._topics)}"
        async with self._opened().ws_connect(url, ssl=self._context, max_msg_size=0) as socket:
            self._socket = socket
            self.n_connected += 1
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY:
                    continue
                self.problem = ""
                missing = self.state.take(message.data)
                if missing is not None:
                    await socket.send_json({"snapshot": missing.label})
                changed()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, connect=TIMEOUT_S, sock_read=None)
            self._session = aiohttp.ClientSession(headers=self._headers, timeout=timeout)
        return self._session

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()


def _text(url: str, problem: Exception) -> str:
    if isinstance(problem, aiohttp.WSServerHandshakeError) and problem.status in (401, 403):
        return f"{url}: {problem.status}: the page asks for a token of its cluster: --token"
    return f"unable to connect to {url}: {str(problem) or 'request timed out'}"
