"""Watchers over real sockets: many get everything in order, a slow one is cut and told 410."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest

from stowplan.apis.machinery.http_messages import StreamChunk, User
from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.auth.flow_control import RequestLimits, RequestRateLimiter
from stowplan.apiserver.auth.static_tokens import StaticTokens
from stowplan.apiserver.auth.token_rbac import TokenRbacAccess
from stowplan.apiserver.bootstrap_objects import create_bootstrap_objects
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.assembly.controller_manager import ControllerManagerOptions
from stowplan.assembly.embedded_cluster import EmbeddedCluster
from stowplan.driver.background_tasks import background_tasks
from stowplan.driver.http.http_server import HttpServer, ServerLimits, listening_socket
from stowplan.driver.http.server_loop import ServerLoop
from tests.contract.up_process import Caller

MAPS = "/api/v1/namespaces/default/configmaps"
ADMIN, PLAIN = "admin-token", "plain-token"


@contextlib.asynccontextmanager
async def serving(
    bounds: ServerLimits | None = None, limits: RequestLimits | None = None, **options: Any
) -> AsyncIterator[tuple[EmbeddedCluster, int, ServerLoop]]:
    """A cluster in which nothing lives, on a port."""
    users = [(ADMIN, User("admin", groups=("system:masters",))), (PLAIN, User("plain"))]
    access = TokenRbacAccess(StaticTokens(users), RequestRateLimiter(limits))
    cluster = EmbeddedCluster(
        ApiServerOptions(
            registry=built_in_registry(),
            access=access,
            admission=default_admission(),
            observers=(access,),
            **options,
        ),
        np.random.default_rng(5),
        manager_options=ControllerManagerOptions(controllers=False, hollow_nodes=False),
    )
    server_loop = ServerLoop(cluster)
    create_bootstrap_objects(cluster.server, server_loop.clock())
    door = listening_socket("127.0.0.1", 0)
    server = HttpServer(server_loop, bounds)
    async with background_tasks() as tasks:
        await server.start(door, tasks)
        try:
            yield cluster, door.getsockname()[1], server_loop
        finally:
            await server.stop()
            await Caller.close_all()


async def write(caller: Caller, first: int, count: int, size: int = 10) -> None:
    for number in range(first, first + count):
        body = {"metadata": {"name": f"m{number}"}, "data": {"x": "y" * size}}
        status, answer = await caller.ask("POST", MAPS, body)
        assert status == 201, answer


def run(scene: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 300))


async def names(port: int, count: int, query: str) -> list[str]:
    """What a watcher sees, in order."""
    caller = await Caller.to(port, ADMIN)
    caller.send("GET", f"{MAPS}?watch=true{query}")
    seen = []
    async for event in caller.lines():
        seen.append(event["object"]["metadata"]["name"])
        if len(seen) == count:
            break
    caller.close()
    return seen


def test_everybody_sees_everything_in_order() -> None:
    async def scene() -> None:
        async with serving() as (cluster, port, _):
            version = cluster.server.version
            watching = [
                asyncio.ensure_future(names(port, 300, f"&resourceVersion={version}"))
                for _ in range(5)
            ]
            caller = await Caller.to(port, ADMIN)
            await write(caller, 0, 150)
            # Late ones read what was before from the history.
            watching += [
                asyncio.ensure_future(names(port, 300, f"&resourceVersion={version}"))
                for _ in range(3)
            ]
            await write(caller, 150, 150)
            wanted = [f"m{number}" for number in range(300)]
            for seen in await asyncio.gather(*watching):
                assert seen == wanted
            caller.close()

    run(scene)


def test_a_slow_watcher_is_cut_and_gets_410_when_it_reconnects() -> None:
    async def scene() -> None:
        bounds = ServerLimits(send_s=0.5)
        async with serving(bounds, history_max=100) as (cluster, port, server_loop):
            version = cluster.server.version
            slow = await Caller.to(port, ADMIN)
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            slow.send("GET", f"{MAPS}?watch=true&resourceVersion={version}")
            caller = await Caller.to(port, ADMIN)
            # More than all buffers on the way can hold.
            await write(caller, 0, 300, size=100_000)
            while server_loop._streams:
                await asyncio.sleep(0.05)
            again = await Caller.to(port, ADMIN)
            again.send("GET", f"{MAPS}?watch=true&resourceVersion={version}")
            event = await anext(again.lines())
            assert event["type"] == "ERROR"
            assert event["object"]["code"] == 410
            for each in (slow, caller, again):
                each.close()

    run(scene)


def test_a_client_that_asks_too_often_gets_429() -> None:
    async def scene() -> None:
        async with serving(limits=RequestLimits(rate_per_s=1, burst=3)) as (_, port, _loop):
            plain = await Caller.to(port, PLAIN)
            statuses = []
            for _ in range(5):
                plain.send("GET", "/api/v1/pods")
                head = (await plain.reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
                body = json.loads(await plain.reader.readexactly(length))
                statuses.append(body["code"])
            assert statuses == [403, 403, 403, 429, 429]
            assert "retry-after: 1" in head.lower()
            # Administrators are exempt.
            admin = await Caller.to(port, ADMIN)
            for _ in range(20):
                assert (await admin.ask("GET", "/api/v1/pods"))[0] == 200
            plain.close()
            admin.close()

    run(scene)


def test_a_server_loop_that_drops_what_it_read_is_caught() -> None:
    class Leaky(ServerLoop):
        """Forgets every tenth chunk, as one would that reads before it may write."""

        reads = 0

        async def read(self, stream: int) -> StreamChunk:
            self.reads += 1
            chunk = await super().read(stream)
            return chunk if self.reads % 10 else await super().read(stream)

    async def scene() -> None:
        async with serving() as (cluster, port, server_loop):
            version = cluster.server.version
            server_loop.__class__ = Leaky
            watching = asyncio.ensure_future(names(port, 50, f"&resourceVersion={version}"))
            caller = await Caller.to(port, ADMIN)
            for number in range(50):
                await write(caller, number, 1)
                await asyncio.sleep(0.005)
            done, _ = await asyncio.wait([watching], timeout=2)
            assert done
            assert watching.result() == [f"m{number}" for number in range(50)]

    with pytest.raises((AssertionError, TimeoutError)):
        run(scene)
