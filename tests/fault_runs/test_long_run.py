"""A month: a scheduler holds on to what there is, however much there has been."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.columns import NodeTable
from stowplan.columns.journal import Journal
from stowplan.cycle import CycleDecider
from stowplan.fault_runs.fault_schedule import WATCHES
from stowplan.objects.pod import Pod
from stowplan.objects.pod_templates import PodTemplates
from stowplan.queue.pre_enqueue import PreEnqueueGates
from stowplan.scheduler.session_lane import SessionLane
from tests.fault_runs.long_run import CAPS, Month
from tests.fault_runs.sizes import Sizes, kept_calls, resident

SHARE, SLACK, SLACK_BUSY = 0.4, 48, 160
"""What one way leads to may vary from night to night by this share, and by so many objects; by more
where four times as many pods come and go."""
WHOLE_SHARE = 0.25
"""All together varies less."""
RESIDENT_MAX = 12_000_000
"""By so many bytes a process may grow in twenty days of which nobody can say what they are."""


@pytest.fixture(autouse=True)
def _little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for (module, name), cap in CAPS.items():
        monkeypatch.setattr(module, name, cap)


def night(month: Month, day: int) -> Sizes:
    """What is held in the night after a day. Until then every machine is compared with a rebuild
    every hour, and every night nobody waits and nothing is under way."""

    def hourly() -> None:
        for scheduler in month.machines():
            scheduler.validate()

    while month.n_days < day:
        month.day(hourly)
        assert month.unrest() == [], f"in the night after day {month.n_days}"
    return month.held()


def changes(first: Sizes, last: Sizes, slack: int = SLACK) -> list[str]:
    """What is held that was not, by the way that leads to it."""
    found = last.grown(first, share=SHARE, slack=slack)
    wholes = {
        "objects": (first.n_objects, last.n_objects),
        "bytes": (first.n_bytes, last.n_bytes),
    }
    for what, (before, after) in wholes.items():
        if after > before * (1 + WHOLE_SHARE):
            found.append(f"{before} {what}, then {after}")
    return found


def unbounded_calls() -> dict[str, int]:
    """Functions that keep all their answers, and how many they have kept."""
    return {name: size for name, size, most in kept_calls("stowplan") if most is None}


def piled_up(before: dict[str, int]) -> list[str]:
    """Those that have kept many more since."""
    return [n for n, size in unbounded_calls().items() if size > before.get(n, 0) + SLACK]


def assert_eventful(month: Month, days: int) -> None:
    """A month in which nothing happens proves nothing."""
    daily = {"lead won": 2, "restart": 1, "Evict": 1, "PatchGroup": 5, "Write": 5, "ReadPod": 0.5}
    told = {**month.injected_counts, "nodes": month.fleet.n_born, "pods": month.n_pods}
    for what, least in {**daily, "nodes": 10, "pods": 150, **dict.fromkeys(WATCHES, 1)}.items():
        assert told.get(what, 0) >= least * days, f"{what} in {days} days: {told}"


@pytest.mark.slow
def test_nights_are_alike() -> None:
    kept, month = unbounded_calls(), Month(1, busy=0.25)
    first = night(month, 1)
    assert changes(first, night(month, 3)) == []
    assert piled_up(kept) == []
    assert_eventful(month, 3)


@pytest.mark.soak
def test_a_month_s_nights_are_alike() -> None:
    kept, month = unbounded_calls(), Month(2)
    second, tenth, room = night(month, 2), night(month, 10), resident()
    last = night(month, 30)
    for before, after in ((second, tenth), (second, last), (tenth, last)):
        assert changes(before, after, SLACK_BUSY) == []
    assert resident() < room + RESIDENT_MAX
    assert piled_up(kept) == []
    assert_eventful(month, 30)


# Wrong variants: mistakes of which nobody hears until the memory is full.


def arrivals_are_kept(patch: pytest.MonkeyPatch) -> None:
    """When a pod came is forgotten when it is bound, not when it goes."""
    right = SessionLane.pod_deleted

    def pod_deleted(self: SessionLane, uid: str) -> None:
        came = self._arrived_at.get(uid, 0)
        right(self, uid)
        self._arrived_at[uid] = came

    patch.setattr(SessionLane, "pod_deleted", pod_deleted)


def specs_are_kept(patch: pytest.MonkeyPatch) -> None:
    """What is found out of a spec is noted beside it, by its identity."""
    right = PreEnqueueGates._about

    def about(self: Any, pod: Pod) -> Any:
        self.__dict__.setdefault("_by_spec", {})[id(pod.spec)] = pod.spec
        return right(self, pod)

    patch.setattr(PreEnqueueGates, "_about", about)


def journals_are_kept(patch: pytest.MonkeyPatch) -> None:
    """Every change is kept for readers that may come."""
    patch.setattr(Journal, "trim", lambda self, n_nodes: None)


def values_are_kept(patch: pytest.MonkeyPatch) -> None:
    """What nodes were ever labelled or tainted with has a number for ever."""
    patch.setattr(NodeTable, "_forget_unused", lambda self: None)


def classes_are_kept(patch: pytest.MonkeyPatch) -> None:
    """Every kind of pod is known until there are far too many."""
    patch.setattr(CycleDecider, "forget_idle", lambda self: None)


def templates_are_kept(patch: pytest.MonkeyPatch) -> None:
    """So are templates."""
    patch.setattr(PodTemplates, "keep_for", lambda self, n_pods: None)


LEAKS = {
    "machine.sessions._arrived": arrivals_are_kept,
    "machine.queue._gates._by_spec": specs_are_kept,
    "machine.cache.nodes.journal._rows": journals_are_kept,
    "machine.cache.nodes.labels._columns[].vocabulary": values_are_kept,
    "machine._decider._engine._index": classes_are_kept,
    "informers[]._decoder._templates._kept": templates_are_kept,
}


@pytest.mark.slow
def test_what_is_kept_for_ever_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in a month of its own would be found too; together they cost one."""
    for leak in LEAKS.values():
        leak(monkeypatch)
    month = Month(1, busy=0.25)
    first = night(month, 1)
    found = changes(first, night(month, 4))
    for way in LEAKS:
        assert any(line.startswith(way) for line in found), f"{way} is not among {found}"
