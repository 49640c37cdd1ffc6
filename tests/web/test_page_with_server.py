"""The page in a real browser, served by our own server: a live scheduler and a finished run."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from msgspec.structs import replace

from stowplan.driver.http.listen_address import ListenAddress
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.generated_workload import generate_workload
from stowplan.objects.pod import Pod
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.results.pod_history import TimedPlacement
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.simulation.simulate import Simulation, simulate
from stowplan.testing import builders
from stowplan.web.serving.page_server import PageServer
from stowplan.web.serving.simulation_source import SimulationSource
from tests.driver.small_api import SmallApi
from tests.driver.test_live import scheduler
from tests.web.browser import Browser

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = "return [...document.querySelectorAll('.rows tbody tr')].map((row) => row.innerText)"
NODES = """
const cells = (row) => [...row.cells].map((cell) => cell.textContent);
return [...document.querySelectorAll('.rows tbody tr')].map(cells).map((row) => [row[0], row[5]]);
"""


def test_a_live_scheduler(page: Browser) -> None:
    async def steps() -> None:
        server = PageServer(ListenAddress("127.0.0.1", 0))
        server.start()
        try:
            async with SmallApi() as api:
                for number in range(4):
                    api.node(f"n{number}")
                api.pod("big", cpu="100")
                async with scheduler(api) as live:
                    server.attach(live)
                    await api.until(lambda: live.is_synced)
                    for number in range(10):
                        api.pod(f"p{number}")
                    await api.until(lambda: list(api.placed().values()) and len(api.binds) >= 10)
                    placed = Counter(api.placed().values())
                    await asyncio.to_thread(look, page, server.url, placed)
        finally:
            await asyncio.to_thread(server.stop)

    asyncio.run(asyncio.wait_for(steps(), 300))


def look(page: Browser, url: str, placed: Counter[str]) -> None:
    """Nodes, then the pending pod by its reason, then why, and every other screen."""
    page.visit(f"{url}/")
    wanted = [[f"n{k}", str(placed[f"n{k}"])] for k in range(4)]
    equal = f"return JSON.stringify((() => {{{NODES}}})()) === arguments[0]"
    page.until(equal, json.dumps(wanted, separators=(",", ":")))
    page.press("2")
    find = (
        "return [...document.querySelectorAll('td a')].find((a) => a.textContent === arguments[0])"
    )
    page.until(find, "default/big")
    assert any("NodeResourcesFit" in row and "Insufficient cpu" in row for row in page.run(ROWS))
    page.run(find, "default/big").click()
    page.until("return document.querySelector('.change')")
    text = page.run("return document.querySelector('main').innerText")
    assert "NodeResourcesFit" in text
    assert "0 of 4" in text
    page.visit(f"{url}/#/nodes?node=n1&pod=default/big")
    page.until("return document.querySelector('.node-panel .notice.error')")
    page.visit(f"{url}/#/decisions?outcome=bound")
    page.until("return document.querySelectorAll('.rows tbody tr').length >= 10")
    page.run("document.querySelector('.rows tbody tr').click()")
    page.until("return document.querySelector('.split .scroll table')")
    for screen in ("queues", "preemptions", "experiments", "what-if"):
        page.visit(f"{url}/#/{screen}")
        page.until("return document.querySelector('main .panel')")
        assert page.logged() == []
        assert all(one.startswith((url, "about:")) for one in page.requests())


def recount(result: Simulation, at: float) -> Counter[str]:
    """Pods on each node at a time, in seconds, from the placements."""
    return Counter(
        one.node
        for one in result.placements
        if isinstance(one, TimedPlacement) and is_on_node(one, at)
    )


def is_on_node(one: TimedPlacement, at: float) -> bool:
    if not one.node or one.bound_s is None or one.bound_s > at:
        return False
    return one.ended_s is None or at < one.ended_s


def test_a_finished_run_at_any_time(page: Browser) -> None:
    result = simulate(generate_workload(10, 80, 3), replay=ReplayOptions(until_s=40_000))
    server = PageServer(ListenAddress("127.0.0.1", 0))
    server.start()
    try:
        server.use(SimulationSource(result, read_deciders(None), 5))
        page.visit(f"{server.url}/#/nodes?at=20000")
        page.until("return document.querySelector('.state').textContent === 'replay'")
        differences(page, result, recount)
        with pytest.raises(AssertionError):
            # Planted: a count of one second later.
            differences(page, result, lambda run, at: recount(run, at + 3000))
        page.visit(f"{server.url}/#/pending?at=20000")
        page.until("return document.querySelector('.state').textContent === 'replay'")
        assert page.logged() == []
    finally:
        server.stop()


def test_why_pods_wait_at_a_moment_of_a_replay(page: Browser) -> None:
    """One node of four cores: at 30 s, one pod lacks cores, and another memory."""
    pods = [
        timed("runs", 0, cpu="3", memory="1Gi"),
        timed("wide", 10, cpu="2", memory="1Gi"),
        timed("large", 20, cpu="1", memory="100Gi"),
    ]
    cluster = Cluster([builders.node("n", cpu="4", memory="16Gi")], pods)
    result = simulate(cluster, replay=ReplayOptions(until_s=60))
    server = PageServer(ListenAddress("127.0.0.1", 0))
    server.start()
    try:
        server.use(SimulationSource(result, read_deciders(None), 5))
        page.visit(f"{server.url}/#/pending?at=30")
        for pod, reason in (("wide", "cpu"), ("large", "memory")):
            page.until(
                "return arguments[0].every((text) => [...document.querySelectorAll('.rows tr')]"
                ".some((row) => arguments[0].every((text) => row.innerText.includes(text))))",
                [f"default/{pod}", f"NodeResourcesFit: Insufficient {reason}"],
            )
        page.visit(f"{server.url}/#/pod?pod=default%2Fwide&at=30")
        row = page.until(
            "return [...document.querySelectorAll('.scroll tbody tr')].map((row) => "
            "[...row.cells].map((cell) => cell.textContent)).find((row) => row[1].includes('cpu'))"
        )
        assert row[:6] == ["NodeResourcesFit", "Insufficient cpu", "1", "1", "2", "1"]
        assert page.logged() == []
    finally:
        server.stop()


def timed(name: str, second: int, **requests: str) -> Pod:
    made = builders.pod(name, uid=name, **requests)
    when = START + timedelta(seconds=second)
    metadata = replace(made.metadata, creation_timestamp=when)
    return replace(made, metadata=metadata)


def differences(
    page: Browser, result: Simulation, counted: Callable[[Simulation, float], Counter[str]]
) -> None:
    """Asserts that the page's nodes have the counted pods at 20 times."""
    page.until("return document.querySelectorAll('.rows tbody tr').length === 10")
    for at in np.random.default_rng(5).integers(1000, 39_000, 20).tolist():
        page.run("location.hash = arguments[0]", f"#/nodes?at={at}")
        page.run("return new Promise((done) => requestAnimationFrame(() => setTimeout(done, 60)))")
        on_nodes = {name: int(count) for name, count in page.run(NODES) if count != "0"}
        assert on_nodes == counted(result, at), at
