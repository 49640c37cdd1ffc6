"""Checks 7 and 10 at their full size: 20,000 pending pods of 150,000, and the OpenB trace.

Times are of a free machine, so these are in `make soak`; the same checks in small are in
`test_page_in_browser.py` and `test_page_with_server.py`.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from stowplan.driver.http.listen_address import ListenAddress
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.encoding.tree import Tree
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.results.pod_history import TimedPlacement
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.simulation.simulate import Simulation, simulate
from stowplan.testing import builders
from stowplan.web.serving.page_server import PageServer
from stowplan.web.serving.page_source import PageSource
from stowplan.web.serving.simulation_source import SimulationSource
from tests.simulation import openb_trace
from tests.web.browser import Browser
from tests.web.test_page_with_server import NODES, recount

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("browser")]

N_NODES, N_PODS, N_PENDING = 5_000, 150_000, 20_000
ELEMENTS_MAX, FILTER_MS, STEP_MS = 3_000, 200, 50
ROWS_ARE_THERE = "return document.querySelectorAll('.rows tbody tr').length > 5"
FILTERED = """
const [text, title, done] = arguments;
const field = document.querySelector('input[data-filter]');
const begun = performance.now();
const look = () => {
  const found = [...document.querySelectorAll('.panel small')];
  const rows = [...document.querySelectorAll('.rows tbody tr')].map((row) => row.cells[0].textContent);
  if (found.some((one) => one.textContent.startsWith(title)) && rows.includes(`default/${text}`)) {
    done(performance.now() - begun);
  } else requestAnimationFrame(look);
};
field.value = text;
field.dispatchEvent(new Event('input'));
look();
"""  # noqa: E501
"""From the last key to the rows of the filter."""
WORK = """
const [step] = arguments;
const slider = document.querySelector('.scrub input');
slider.value = step;
const waiting = [];
const frame = window.requestAnimationFrame;
window.requestAnimationFrame = (draw) => waiting.push(draw);
const begun = performance.now();
try {
  slider.dispatchEvent(new Event('input'));
  while (waiting.length) waiting.shift()(performance.now());
  // The layout belongs to it.
  document.body.getBoundingClientRect();
  return performance.now() - begun;
} finally {
  window.requestAnimationFrame = frame;
}
"""
"""A step of the slider with all that it draws, without waiting for the screen."""


class StillSource(SimulationSource):
    """A run as a live scheduler has it: rows stay on the server, and nothing changes."""

    async def cluster(self) -> Tree:
        tree = await super().cluster()
        return {**tree, "source": "live", "can": {**tree["can"], "replay": False}}


@contextmanager
def serving(source: PageSource) -> Iterator[str]:
    server = PageServer(ListenAddress("127.0.0.1", 0))
    server.start()
    try:
        server.use(source)
        yield server.url
    finally:
        server.stop()


@pytest.fixture(scope="module")
def full() -> Simulation:
    """130,000 pods have a node, 20,000 wait for larger ones."""
    nodes = [builders.node(f"node-{k}", cpu="32", memory="128Gi") for k in range(N_NODES)]
    placed = N_PODS - N_PENDING
    pods = [builders.pod(f"job-{k}", uid=f"u{k}", cpu="1") for k in range(placed)]
    pods += [
        builders.pod(f"wait-{k}", uid=f"w{k}", cpu="64", priority=k % 7) for k in range(N_PENDING)
    ]
    return simulate(Cluster(nodes, pods))


def test_20000_pending_pods_by_keyboard(page: Browser, full: Simulation) -> None:
    with serving(StillSource(full, read_deciders(None), 5)) as url:
        page.visit(f"{url}/#/nodes")
        page.until(ROWS_ARE_THERE)
        page.press("2")
        page.until("return document.title.startsWith('Pending') && " + ROWS_ARE_THERE[7:])
        assert page.run("return document.querySelectorAll('*').length") < ELEMENTS_MAX
        times = [
            page.driver.execute_async_script(FILTERED, f"wait-{number}", "1 of")
            for number in np.random.default_rng(3).integers(2_500, N_PENDING, 12).tolist()
        ]
        print(f"a filter over {N_PENDING} pending pods: {sorted(round(t) for t in times)} ms")
        # By keys alone: filter, open, back, sort.
        page.press("2", "/")
        page.run("document.querySelector('input[data-filter]').select()")
        page.press(*"wait-1999")
        page.until("return location.hash.includes('filter=wait-1999')")
        page.until(
            "return [...document.querySelectorAll('.rows tbody tr')].some("
            "(row) => row.innerText.includes('default/wait-1999'))"
        )
        page.press("\ue00c", "t", "\ue015", "\ue007")
        page.until("return document.querySelector('h2.title')")
        page.press("\ue00c")
        page.until("return location.hash.startsWith('#/pending')")
        page.until(ROWS_ARE_THERE)
        page.run("document.querySelector('.rows th button').focus()")
        page.press("\ue007")
        page.until("return document.querySelector('th[aria-sort=\"ascending\"]')")
        assert page.run("return document.querySelectorAll('*').length") < ELEMENTS_MAX
        assert page.logged() == []
        assert statistics.median(times) < FILTER_MS


def test_a_replay_with_20000_pending_pods(page: Browser, full: Simulation) -> None:
    with serving(SimulationSource(full, read_deciders(None), 5)) as url:
        page.visit(f"{url}/#/pending")
        page.until(ROWS_ARE_THERE)
        assert page.run("return document.querySelectorAll('*').length") < ELEMENTS_MAX
        times = [
            page.driver.execute_async_script(FILTERED, f"wait-{number}", "1 of")
            for number in (12_345, 15_432, 19_999)
        ]
        steps = [page.run(WORK, step) for step in (100, 900, 500, 980)]
        print(f"150,000 pods as a replay: filter {times} ms, step {steps} ms")
        assert statistics.median(times) < FILTER_MS


def agreed(page: Browser, there: Counter[str]) -> int:
    """Waits until the visible nodes have these pods; how many have some."""
    for _ in range(200):
        rows = page.run(NODES)
        if rows and all(int(pods) == there[name] for name, pods in rows):
            return sum(there[name] > 0 for name, _ in rows)
        time.sleep(0.05)
    raise AssertionError([one for one in rows if int(one[1]) != there[one[0]]])


def test_the_openb_trace_is_scrubbed(page: Browser) -> None:
    folder = openb_trace.real()
    if folder is None:
        pytest.skip("needs the OpenB trace in the folder that STOWPLAN_TRACES names")
    paths = [folder / "openb_node_list_gpu_node.csv", folder / "openb_pod_list_default.csv"]
    result = simulate(paths, replay=ReplayOptions())
    with serving(SimulationSource(result, read_deciders(None), 5)) as url:
        page.visit(f"{url}/#/nodes")
        page.until("return document.querySelector('.state').textContent === 'replay'")
        page.until(ROWS_ARE_THERE)
        steps = np.random.default_rng(5).integers(20, 980, 20).tolist()
        page.run(WORK, 500)
        times = [page.run(WORK, step) for step in steps]
        print(f"a step of the OpenB replay: {sorted(round(t, 1) for t in times)} ms")
        end = max(one.bound_s or 0 for one in result.placements if isinstance(one, TimedPlacement))
        # Anew: the address follows the slider a moment later.
        page.visit(f"{url}/#/nodes?at=1&sort=-share")
        page.until(ROWS_ARE_THERE)
        compared = 0
        for at in np.random.default_rng(7).integers(1, int(end), 20).tolist():
            page.run("location.hash = arguments[0]", f"#/nodes?at={at}&sort=-share")
            there = recount(result, at)
            compared += agreed(page, there)
        assert compared > 20
        assert page.logged() == []
        assert statistics.median(times) < STEP_MS
