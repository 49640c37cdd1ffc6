"""Checks 3 and 6 in memory and in number: what ten viewers add, and a thousand that come and go."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from stowplan.driver.http.listen_address import ListenAddress
from stowplan.inputs.generated_workload import generate_workload
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.simulation.simulate import simulate
from stowplan.web.serving.page_server import PageServer
from stowplan.web.serving.simulation_source import SimulationSource

N_NODES, N_VIEWERS, N_FRAMES = 5_000, 10, 30
MEMORY_MAX_KB = 20_000
LIVE = "/api/page/v1/live?topics=status,nodes,pending,queues,decisions"
AT_ONCE = 20


async def come_and_go(url: str, count: int) -> None:
    """Viewers that leave without a word once they have the first frame, some before it."""
    async with aiohttp.ClientSession() as session:

        async def one(number: int) -> None:
            socket = await session.ws_connect(url + LIVE, max_msg_size=0)
            if number % 3:
                await socket.receive()
            # The connection is lost: no closing handshake.
            assert socket._response.connection is not None
            assert socket._response.connection.transport is not None
            socket._response.connection.transport.abort()

        for begin in range(0, count, AT_ONCE):
            await asyncio.gather(*(one(number) for number in range(begin, begin + AT_ONCE)))


@pytest.mark.parametrize(
    "count", [100, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.soak])]
)
def test_viewers_that_come_and_go_leave_nothing(count: int) -> None:
    result = simulate(generate_workload(20, 100, 3))
    server = PageServer(ListenAddress("127.0.0.1", 0))
    server.start()

    async def steps() -> None:
        await come_and_go(server.url, count)
        # Planted: one that stays is seen.
        async with aiohttp.ClientSession() as session:
            staying = await session.ws_connect(server.url + LIVE, max_msg_size=0)
            await staying.receive()
            while len(server.viewers) != 1:
                await asyncio.sleep(0.01)
            await staying.close()
            while len(server.viewers):
                await asyncio.sleep(0.01)
            async with session.get(f"{server.url}/api/page/v1/cluster") as answer:
                assert answer.status == 200

    try:
        server.use(SimulationSource(result, read_deciders(None), 5))
        asyncio.run(asyncio.wait_for(steps(), 120))
    finally:
        server.stop()


@contextmanager
def large_cluster(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`stowplan up` with many nodes, and the address of its page."""
    command = [sys.executable, "-m", "stowplan", "up", "--node-count", str(N_NODES)]
    process = subprocess.Popen(
        [*command, "--port", "0", "--kubeconfig", str(folder / "kc"), "--web"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        for line in process.stdout:
            found = re.search(r"Web page: (\S+)", line)
            if found:
                yield process, found[1]
                return
        raise AssertionError("the server ended before it served the page")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)


def memory_kb(process: subprocess.Popen[str]) -> int:
    text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+([0-9]+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1])


async def watched(url: str, process: subprocess.Popen[str], count: int) -> int:
    """Memory of the server while viewers look; each has had snapshots and more frames."""
    async with aiohttp.ClientSession() as session:
        sockets = [await session.ws_connect(url + LIVE, max_msg_size=0) for _ in range(count)]

        async def receive(socket: aiohttp.ClientWebSocketResponse) -> None:
            for _ in range(N_FRAMES):
                await socket.receive()

        await asyncio.gather(*map(receive, sockets))
        found = memory_kb(process)
        for socket in sockets:
            await socket.close()
        return found


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ten_viewers_of_5000_nodes_add_little_memory(tmp_path: Path) -> None:
    with large_cluster(tmp_path) as (process, url):
        alone = asyncio.run(asyncio.wait_for(watched(url, process, 1), 300))
        together = asyncio.run(asyncio.wait_for(watched(url, process, N_VIEWERS), 300))
    added = together - alone
    print(f"server with one viewer {alone} kB; ten viewers add {added} kB")
    assert added < MEMORY_MAX_KB
