"""Long run: what a scheduler holds depends on the present cluster, not on its history."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from stowplan.columns import NodeTable
from stowplan.columns.journal import Journal
from stowplan.cycle import CycleDecider
from stowplan.objects.pod import Pod
from stowplan.objects.pod_templates import PodTemplates
from stowplan.queue.pre_enqueue import PreEnqueueGates
from stowplan.scheduler.lanes.session_lane import SessionLane
from tests.fault_runs.fault_schedule import WATCHES
from tests.fault_runs.long_run import CAPS, LongRun
from tests.fault_runs.object_sizes import ObjectSizes, kept_calls, resident

SHARE, SLACK, SLACK_BUSY = 0.4, 48, 160
"""Growth of one path between nights: share, and number of objects (more under full load)."""
WHOLE_SHARE = 0.25
"""Allowed growth of all objects together."""
RESIDENT_MAX = 12_000_000
"""Allowed growth of the resident set in 20 days."""
BLOCKS_SHARE = 0.05
"""Allowed growth of the blocks of memory in use in 20 days: of all that the process holds."""


@pytest.fixture(autouse=True)
def _little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for (module, name), cap in CAPS.items():
        monkeypatch.setattr(module, name, cap)


def run_until(run: LongRun, day: int) -> None:
    """Run until the night after `day`. Every hour each scheduler is compared with a rebuild; every
    night nothing is pending or in progress."""

    def hourly() -> None:
        for scheduler in run.schedulers_running():
            scheduler.validate()

    while run.n_days < day:
        run.day(hourly)
        assert run.not_at_rest() == [], f"in the night after day {run.n_days}"


def night(run: LongRun, day: int) -> ObjectSizes:
    """Objects held in the night after `day`."""
    run_until(run, day)
    return run.held_objects()


def changes(first: ObjectSizes, last: ObjectSizes, slack: int = SLACK) -> list[str]:
    """Growth between two nights, by path."""
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
    """Functions with an unbounded cache -> number of entries."""
    return {name: size for name, size, most in kept_calls("stowplan") if most is None}


def grown_caches(before: dict[str, int]) -> list[str]:
    """Unbounded caches that have grown since."""
    return [n for n, size in unbounded_calls().items() if size > before.get(n, 0) + SLACK]


def assert_eventful(run: LongRun, days: int) -> None:
    """A run without faults tests nothing."""
    daily = {"lead won": 2, "restart": 1, "Evict": 1, "PatchGroup": 5, "Write": 5, "ReadPod": 0.5}
    counts = {**run.injected_counts, "nodes": run.node_rotation.n_created, "pods": run.n_pods}
    for what, least in {**daily, "nodes": 10, "pods": 150, **dict.fromkeys(WATCHES, 1)}.items():
        assert counts.get(what, 0) >= least * days, f"{what} in {days} days: {counts}"


@pytest.mark.slow
def test_nights_are_alike() -> None:
    kept, run = unbounded_calls(), LongRun(1, busy=0.25)
    first = night(run, 1)
    assert changes(first, night(run, 3)) == []
    assert run.held_of_ended() == []
    assert grown_caches(kept) == []
    assert_eventful(run, 3)


@pytest.mark.soak
def test_thirty_nights_are_alike() -> None:
    kept, run = unbounded_calls(), LongRun(2)
    second = night(run, 2)
    # Counting objects takes memory of its own, so it is not done between these nights.
    run_until(run, 10)
    assert run.held_of_ended() == []
    blocks, resident_before = sys.getallocatedblocks(), resident()
    run_until(run, 30)
    assert run.held_of_ended() == []
    assert sys.getallocatedblocks() < blocks * (1 + BLOCKS_SHARE)
    assert resident() < resident_before + RESIDENT_MAX
    assert changes(second, run.held_objects(), SLACK_BUSY) == []
    assert grown_caches(kept) == []
    assert_eventful(run, 30)


# Wrong variants: leaks.


def arrivals_are_kept(patch: pytest.MonkeyPatch) -> None:
    """The arrival time of a deleted pod is kept."""
    right = SessionLane._pod_deleted

    def pod_deleted(self: SessionLane, uid: str) -> None:
        came = self._arrived_at.get(uid, 0)
        right(self, uid)
        self._arrived_at[uid] = came

    patch.setattr(SessionLane, "_pod_deleted", pod_deleted)


def specs_are_kept(patch: pytest.MonkeyPatch) -> None:
    """Every spec is kept by its id."""
    right = PreEnqueueGates._about

    def about(self: Any, pod: Pod) -> Any:
        self.__dict__.setdefault("_by_spec", {})[id(pod.spec)] = pod.spec
        return right(self, pod)

    patch.setattr(PreEnqueueGates, "_about", about)


def journals_are_kept(patch: pytest.MonkeyPatch) -> None:
    """The journal is never trimmed."""
    patch.setattr(Journal, "trim", lambda self, n_nodes: None)


def values_are_kept(patch: pytest.MonkeyPatch) -> None:
    """Unused vocabulary items are never removed."""
    patch.setattr(NodeTable, "_forget_unused", lambda self: None)


def classes_are_kept(patch: pytest.MonkeyPatch) -> None:
    """Idle pod classes are never removed."""
    patch.setattr(CycleDecider, "forget_idle", lambda self: None)


def templates_are_kept(patch: pytest.MonkeyPatch) -> None:
    """Unused pod templates are never removed."""
    patch.setattr(PodTemplates, "keep_for", lambda self, n_pods: None)


LEAKS = {
    "scheduler.lanes.batch[]._arrived_at": arrivals_are_kept,
    "scheduler.queue.gates._by_spec": specs_are_kept,
    "scheduler.cache.nodes.journal._rows": journals_are_kept,
    "scheduler.cache.nodes.labels._columns[].vocabulary": values_are_kept,
    "scheduler.pod_lane.decider._engine._index": classes_are_kept,
    "informers[]._decoder._templates._kept": templates_are_kept,
}


@pytest.mark.slow
def test_leaks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """All leaks in one run: a run for each would be slow."""
    for leak in LEAKS.values():
        leak(monkeypatch)
    run = LongRun(1, busy=0.25)
    first = night(run, 1)
    found = changes(first, night(run, 3))
    for path in LEAKS:
        assert any(line.startswith(path) for line in found), f"{path} is not among {found}"
