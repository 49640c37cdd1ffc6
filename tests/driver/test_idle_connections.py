"""Idle connections: which are closed, so that others can connect."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from stowplan.apis.machinery.http_messages import HttpResponse
from stowplan.driver.http.http_server import ServerLimits, ServerTls
from stowplan.driver.http.idle_connections import connections_max
from stowplan.driver.storage.credentials_files import serving_certificate
from tests.driver.stub_cluster import JSON, Client, StubCluster, served
from tests.driver.test_http_server import trusting


def run(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 240))


def test_excess_connections_are_closed_when_none_is_idle() -> None:
    async def scene() -> None:
        async with served(StubCluster(), ServerLimits(connections_max=2)) as (_, port):
            clients = [await Client.to(port) for _ in range(2)]
            for client in clients:
                client.get("/watch")
                await client.head()
            assert await (await Client.to(port)).rest() == b""
            clients[0].close()
            while (status := await _status_of(await Client.to(port))) is None:
                await asyncio.sleep(0.01)
            assert status == 200

    run(scene())


async def _status_of(client: Client) -> int | None:
    """What a request is answered with; None if the connection was closed."""
    client.get("/x")
    try:
        return (await client.whole())[0]
    except (OSError, asyncio.IncompleteReadError, ValueError):
        return None


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("secret", [False, True])
def test_idle_connections_do_not_block_others(method: str, secret: bool) -> None:
    """Nobody needs a token to open connections. Those without an accepted request go first."""

    async def scene() -> None:
        cluster = StubCluster(
            lambda asked: HttpResponse(403 if asked.path == "/no" else 200, JSON, b"{}")
        )
        keys = serving_certificate(None, "127.0.0.1", time.time())
        how = {"ssl": trusting(keys.certificate)} if secret else {}
        bounds, tls = ServerLimits(connections_max=4), ServerTls(keys.context, plain=True)
        async with served(cluster, bounds, tls=tls) as (_, port):
            friend = await Client.to(port, **how)
            friend.get("/x", method=method)
            assert (await friend.whole())[0] == 200
            refused = await Client.to(port, **how)
            refused.get("/no", method=method)
            assert (await refused.whole())[0] == 403
            idle = [await Client.to(port) for _ in range(10)]
            late = await Client.to(port, **how)
            late.get("/x", method=method)
            assert (await late.whole())[0] == 200
            assert await refused.rest() == b""
            assert await idle[0].rest() == b""
            friend.get("/x", method=method)
            assert (await friend.whole())[0] == 200
            for client in idle:
                client.close()

    run(scene())


def test_a_process_that_may_open_few_files_takes_few_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 256))
    assert connections_max(10_000) == 192
    assert connections_max(100) == 100
    monkeypatch.setattr("resource.getrlimit", lambda _: (1 << 20, 1 << 20))
    assert connections_max(10_000) == 10_000
