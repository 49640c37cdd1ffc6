"""Check 12: the page may stay open for hours, and in ten tabs."""

from __future__ import annotations

import pytest

from tests.web.browser import Browser
from tests.web.fake_cluster import FakeCluster
from tests.web.fake_page_server import FakePageServer, served

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

ROWS = "return document.querySelectorAll('.rows tbody tr').length > 5"
LIVE = "return document.querySelector('.state').dataset.state === 'live'"
GROWTH_MAX, ROUNDS = 0.1, 5
"""Of the heap at first, in each round: what warms up or waits for a collection ends, a leak does
not. 40 changes that each leave an object for each of 300 rows behind are three times as much."""
N_TABS = 10
LEAKS = """
window.kept = [];
const Socket = window.WebSocket;
window.WebSocket = class extends Socket {
  constructor(...given) {
    super(...given);
    this.addEventListener('message', () => {
      window.kept.push(Array.from({ length: 300 }, (_, row) => ({ row, name: `n${row}` })));
    });
  }
};
"""


def heap(page: Browser) -> int:
    """The least bytes of JavaScript's heap after one of some collections."""
    sizes = []
    for _ in range(3):
        page.command("HeapProfiler.collectGarbage", {})
        sizes.append(page.driver.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"])
        page.run("return new Promise((done) => requestAnimationFrame(done))")
    return int(min(sizes))


def after(page: Browser, server: FakePageServer, ticks: int) -> int:
    """The heap once so many ticks have come."""
    end = server.cluster.ticks + ticks
    while server.cluster.ticks < end:
        page.run("return new Promise((done) => setTimeout(done, 100))")
    return heap(page)


def grows(page: Browser, server: FakePageServer, ticks: int, rounds: int = ROUNDS) -> bool:
    """True if the heap grows in every round of so many ticks."""
    before = after(page, server, ticks)
    slack = GROWTH_MAX * before
    for _ in range(rounds):
        now = after(page, server, ticks)
        if now < before + slack:
            return False
        before = now
    return True


@pytest.mark.parametrize(
    ("screen", "ticks"),
    [
        ("nodes", 40),
        # An hour at ten frames a second, and the other screens that change.
        *(
            pytest.param(name, 3600, marks=pytest.mark.soak)
            for name in ("nodes", "pending", "decisions")
        ),
    ],
)
def test_the_heap_does_not_grow(page: Browser, screen: str, ticks: int) -> None:
    server = FakePageServer(FakeCluster(300, 300), hz=80)
    with served(server) as port:
        page.visit(f"http://127.0.0.1:{port}/#/{screen}")
        page.until(ROWS)
        if ticks > 1000:
            # What is kept at most (rates, decisions) has to be full.
            after(page, server, ticks)
        assert not grows(page, server, ticks)


def test_what_every_change_leaves_behind_is_caught(page: Browser) -> None:
    command = "Page.addScriptToEvaluateOnNewDocument"
    script = page.driver.execute_cdp_cmd(command, {"source": LEAKS})["identifier"]
    server = FakePageServer(FakeCluster(300, 300), hz=80)
    try:
        with served(server) as port:
            page.visit(f"http://127.0.0.1:{port}/#/nodes")
            page.until(ROWS)
            assert grows(page, server, 40, rounds=2)
            page.driver.get("about:blank")
    finally:
        page.command("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script})


@pytest.mark.soak
def test_ten_tabs_are_live_at_once(page: Browser) -> None:
    server = FakePageServer(FakeCluster(500, 200), hz=10)
    first = page.driver.current_window_handle
    with served(server) as port:
        try:
            for _ in range(N_TABS):
                page.driver.switch_to.new_window("tab")
                page.driver.get(f"http://127.0.0.1:{port}/#/nodes")
                page.until(ROWS)
            assert len(server.viewers) == N_TABS
            for handle in page.driver.window_handles[1:]:
                page.driver.switch_to.window(handle)
                page.until(LIVE)
        finally:
            for handle in page.driver.window_handles:
                if handle != first:
                    page.driver.switch_to.window(handle)
                    page.driver.close()
            page.driver.switch_to.window(first)
