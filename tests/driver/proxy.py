"""A faulty proxy between a scheduler and its API server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import numpy as np
from aiohttp import web

from stowplan.client.kubeconfig import ClientConfig
from stowplan.driver.client.credentials import client_tls_context
from tests.driver.small_api import status

KINDS = ("500", "409", "429", "reset", "stall", "lost reply")
HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host"}


class Proxy:
    """share: part of requests that fail, leases excepted; seen: number of faults by kind. cut_s:
    every watch is cut inside a line after this time; None for never."""

    def __init__(self, client_config: ClientConfig, share: float = 0.0, seed: int = 1) -> None:
        self.share = share
        self.cut_s: float | None = None
        self.seen: Counter[str] = Counter()
        self.url = ""
        self._server = client_config.server
        self._rng = np.random.default_rng(seed)
        self._context: Any = client_tls_context(
            client_config.ca.data, b"", b"", "proxy", is_insecure=client_config.is_insecure
        )
        self._session: aiohttp.ClientSession | None = None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        is_watch = request.query.get("watch") == "true"
        kind = ""
        if not is_watch and "/leases" not in request.path and self._rng.random() < self.share:
            kind = KINDS[int(self._rng.integers(len(KINDS)))]
        if kind == "409" and request.method == "GET":
            kind = "500"
        self.seen[kind] += 1
        match kind:
            case "500":
                return status(500, "InternalError", "etcdserver: request timed out")
            case "409":
                return status(409, "Conflict", "the object has been modified", name="x")
            case "429":
                answer = status(429, "TooManyRequests", "later")
                if self._rng.random() < 0.5:
                    answer.headers["Retry-After"] = "1"
                return answer
            case "stall":
                await asyncio.sleep(1.0)
            case "reset":
                return _reset(request)
        try:
            return await self._passed(
                request, body, is_watch=is_watch, is_lost=kind == "lost reply"
            )
        except (aiohttp.ClientError, OSError):
            return _reset(request)

    async def _passed(
        self, request: web.Request, body: bytes, *, is_watch: bool, is_lost: bool
    ) -> web.StreamResponse:
        assert self._session is not None
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP}
        async with self._session.request(
            request.method, self._server + request.path_qs, data=body, headers=headers
        ) as upstream:
            if not is_watch:
                text = await upstream.read()
                if is_lost:
                    return _reset(request)
                kept = {k: v for k, v in upstream.headers.items() if k.lower() not in HOP}
                kept.pop("Content-Encoding", None)
                return web.Response(status=upstream.status, body=text, headers=kept)
            return await self._watched(request, upstream)

    async def _watched(
        self, request: web.Request, upstream: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        answer = web.StreamResponse(
            status=upstream.status, headers={"Content-Type": upstream.content_type}
        )
        await answer.prepare(request)
        try:
            async with asyncio.timeout(self.cut_s):
                async for data in upstream.content.iter_any():
                    await answer.write(data)
        except TimeoutError:
            self.seen["cut"] += 1
            await answer.write(b'{"type":"MODIFIED","object":{"kind":"Pod","meta')
            return _reset(request)
        return answer


def _reset(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError


@asynccontextmanager
async def proxy(
    client_config: ClientConfig, share: float = 0.0, seed: int = 1
) -> AsyncIterator[Proxy]:
    made = Proxy(client_config, share, seed)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", made.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    connector = aiohttp.TCPConnector(ssl=made._context, limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        made._session = session
        try:
            yield made
        finally:
            await runner.cleanup()
