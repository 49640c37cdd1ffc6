"""Check 12: the page may stay open for hours, and in ten tabs."""

from __future__ import annotations

import pytest

from tests.web.browser import Browser
from tests.web.fake_cluster import FakeCluster
from tests.web.fake_page_server import FakePageServer, served

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

ROWS = "return document.querySelectorAll('.rows tbody tr').length > 5"
LIVE = "return document.querySelector('.state').dataset.state === 'live'"
GROWTH_MAX = 1.1
N_TABS = 10


def heap(page: Browser) -> int:
    """Bytes of JavaScript's heap after a collection."""
    page.command("HeapProfiler.collectGarbage", {})
    return int(page.driver.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"])


def after(page: Browser, server: FakePageServer, ticks: int) -> int:
    """The heap once so many ticks have come."""
    end = server.cluster.ticks + ticks
    while server.cluster.ticks < end:
        page.run("return new Promise((done) => setTimeout(done, 100))")
    return heap(page)


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
    server = FakePageServer(FakeCluster(300, 300), hz=40)
    with served(server) as port:
        page.visit(f"http://127.0.0.1:{port}/#/{screen}")
        page.until(ROWS)
        # What is kept at most (rates, decisions) has to be full.
        before = after(page, server, 40 if ticks < 1000 else 2 * ticks)
        assert after(page, server, ticks) < GROWTH_MAX * before
        # Planted: something that every change leaves behind.
        page.run("window.kept = Array.from({ length: 9 }, (_, k) => new Array(1e5).fill(k));")
        assert heap(page) > GROWTH_MAX * before


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
