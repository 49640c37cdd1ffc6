"""Check 6: a viewer at 20 kB/s costs the server nothing, and ends with what a fresh one has."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pytest

from stowplan.driver.http.listen_address import ListenAddress
from stowplan.web.model.page_frames import FrameBody, Topic
from stowplan.web.serving import viewers as viewers_module
from stowplan.web.serving.page_server import PageServer
from stowplan.web.serving.page_source import TopicState
from stowplan.web.serving.viewers import WAITING_MAX
from tests.web.browser import Browser
from tests.web.checks.slow_link import SlowLink, slow_link

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

RATE = 20_000
N_NODES = 5_000
STATE = """
const all = (selector, text) => [...document.querySelectorAll(selector)].map(text);
const row = (one) => [...one.cells].map((cell) => cell.textContent).join();
const sums = all('.overview .meter', (one) => one.title);
return JSON.stringify(sums.concat(all('.rows tbody tr', row)));
"""
"""The visible rows, and the sums over all nodes."""
ROWS = "return document.querySelectorAll('.rows tbody tr').length > 5"


class ChangingState(msgspec.Struct, frozen=True):
    """Nodes that all change with every number, in an array of their requests."""

    number: int

    def requested(self) -> Any:
        return np.random.default_rng(self.number).integers(0, 96_000, N_NODES)

    def snapshot(self) -> FrameBody:
        names = [f"node-{place:05d}" for place in range(N_NODES)]
        tree = {"names": names, "resources": [{"name": "cpu", "unit": "milli"}], "groups": {}}
        offered = np.full(N_NODES, 96_000)
        arrays = {"allocatable:cpu": offered, "requested:cpu": self.requested()}
        return FrameBody(tree, {**arrays, "flags": np.zeros(N_NODES, int)})

    def update_since(self, before: ChangingState) -> FrameBody | None:
        return FrameBody({}, {"rows": np.arange(N_NODES), "requested:cpu": self.requested()})


class StatusState(msgspec.Struct, frozen=True):
    def snapshot(self) -> FrameBody:
        return FrameBody(
            {"healthy": True, "nodes": N_NODES, "pending": {}, "why": [], "changed": []}
        )

    def update_since(self, before: StatusState) -> FrameBody | None:
        return self.snapshot()


class ChangingSource:
    """A source whose nodes change at every look until `is_still`. waiting: most frames that waited
    for one viewer at a look."""

    def __init__(self, server: PageServer) -> None:
        self.epoch, self.number, self.waiting = 1, 0, 0
        self.is_still = False
        self._server = server

    async def look(self, last: Mapping[Topic, TopicState | None]) -> dict[Topic, TopicState]:
        self.number += not self.is_still
        self.waiting = max([self.waiting, *(one.n_waiting for one in self.viewers)])
        states: dict[Topic, Any] = {
            Topic.NODES: ChangingState(self.number),
            Topic.STATUS: StatusState(),
        }
        return {one: states[one] for one in last if one in states and states[one] != last[one]}

    @property
    def viewers(self) -> list[Any]:
        return list(self._server.viewers._viewers)

    @property
    def n_dropped(self) -> int:
        return sum(one.n_dropped for one in self.viewers)

    async def cluster(self) -> dict[str, Any]:
        return {"source": "live", "epoch": 1, "can": {}}


@contextmanager
def slow_page(page: Browser) -> Iterator[tuple[ChangingSource, SlowLink, str]]:
    """A page that a browser looks at over a slow link."""
    server = PageServer(ListenAddress("127.0.0.1", 0))
    server.start()
    source = ChangingSource(server)
    try:
        server.use(source)  # type: ignore[arg-type]
        with slow_link(server.port) as link:
            page.visit(f"http://127.0.0.1:{link.port}/#/nodes")
            page.until(ROWS)
            link.rate = RATE
            yield source, link, server.url
    finally:
        page.driver.get("about:blank")
        server.stop()


def wait_for(page: Browser, holds: Any) -> None:
    """Until a condition of the server holds."""
    end = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < end, "the condition did not become true"
        page.run("return new Promise((done) => setTimeout(done, 50))")


def state_of(page: Browser, source: ChangingSource) -> str:
    """The page's state, once it has the sum over all nodes of the last change."""
    milli = int(ChangingState(source.number).requested().sum())
    title = "return document.querySelector('.overview .meter')?.title.startsWith(arguments[0])"
    page.until(title, f"{milli / 1000:,.0f} of ")
    state: str = page.run(STATE)
    return state


def test_a_slow_viewer_is_dropped_from_and_then_has_all(page: Browser) -> None:
    with slow_page(page) as (source, link, url):
        wait_for(page, lambda: source.n_dropped > WAITING_MAX)
        assert source.waiting <= WAITING_MAX
        source.is_still = True
        link.rate = None
        after = state_of(page, source)
        page.visit(f"{url}/#/nodes")
        page.until(ROWS)
        assert state_of(page, source) == after
        assert page.logged() == []
        # Planted: a page that has missed a change.
        source.number += 1
        assert state_of(page, source) != after


def test_without_the_limit_frames_pile_up(page: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewers_module, "WAITING_MAX", 1 << 30)
    with slow_page(page) as (source, _, _):
        wait_for(page, lambda: source.waiting > 2 * WAITING_MAX)


@pytest.mark.soak
def test_memory_stays_flat_for_five_minutes(page: Browser) -> None:
    with slow_page(page) as (source, _, _):
        wait_for(page, lambda: source.n_dropped > WAITING_MAX)
        rounds = []
        # What piles up does so in every round.
        while len(rounds) < 4 and min(rounds, default=10_000) >= 10_000:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            begun = source.number
            while source.number < begun + 3000:
                page.run("return new Promise((done) => setTimeout(done, 1000))")
            rounds.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        assert min(rounds) < 10_000, rounds
