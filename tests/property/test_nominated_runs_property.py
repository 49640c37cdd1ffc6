"""Runs of pods placed by kernels while others are nominated to nodes: effects equal the walk's.

Each wrong variant leaves out one thing that a choice beside nominated pods depends on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.columns.engine import kernels as compiled
from stowplan.columns.engine import numpy_kernels
from stowplan.cycle.engine import nominated_rows
from stowplan.cycle.engine.nominated_rows import NominatedRows
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.scheduler import SchedulerOptions
from stowplan.testing import builders
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int
from tests.property.engine_random_walk import Pair, scheduler
from tests.property.wrong import assert_caught
from tests.soak import examples

SEEDS = st.integers(0, 2**32 - 1)
N_STEPS = 6
SIZES = ("500m", "900m", "1", "2", "100m", "100m", "300m")
PRIORITIES = (-5, 0, 0, 10, 10, 100)


class Preemptions:
    """Full nodes, pods that preempt there, and pods that come while the victims still leave."""

    def __init__(self, seed: int, kernels: Any) -> None:
        self.rng: RandomSource = np.random.default_rng(seed)
        seed_of_ties = seed if chance(self.rng, 2) else None
        self.pair = Pair(kernels, lambda: scheduler(seed_of_ties, SchedulerOptions()))
        self.pods: dict[str, Pod] = {}
        self.leaving: list[to_do.Evict] = []
        self.n_beside = 0
        self._now = 0
        names = [f"n{i}" for i in range(random_int(self.rng, 1, 7))]
        added: list[Event] = []
        for name in names:
            pods = pick(self.rng, (110, 110, 6, 4))
            added.append(
                happened.NodeAdded(builders.node(name, cpu=pick(self.rng, ("2", "4")), pods=pods))
            )
            added += [
                self._pod(pick(self.rng, (-10, 0, 5)), "900m", name)
                for _ in range(random_int(self.rng, 0, 4))
            ]
        self._handle(added)

    def _pod(self, priority: int, cpu: str, on: str = "") -> Event:
        name = f"p{len(self.pods)}"
        pod = builders.pod(name, uid=name, cpu=cpu, priority=priority, on=on)
        self.pods[name] = pod
        return happened.PodAdded(pod)

    def step(self) -> None:
        """Pods of a few templates come, some victims are gone, and a nominated pod is deleted."""
        rng = self.rng
        events: list[Event] = []
        for _ in range(random_int(rng, 1, 4)):
            priority, cpu = pick(rng, PRIORITIES), pick(rng, SIZES)
            events += [self._pod(priority, cpu) for _ in range(pick(rng, (1, 2, 5)))]
        n_gone = random_int(rng, 0, len(self.leaving))
        for eviction in self.leaving[:n_gone]:
            events.append(happened.EvictDone(eviction.effect, eviction.uid))
            events.append(happened.PodDeleted(self.pods[eviction.uid]))
        del self.leaving[:n_gone]
        if chance(rng, 3):
            events += [happened.PodDeleted(self.pods[uid]) for uid in self._nominated()[:1]]
        self._now += random_int(rng, 0, 8) * 10**9
        self._handle(events)

    def _nominated(self) -> list[str]:
        nominator = self.pair.walked.queue.nominator
        return [uid for uid in self.pods if nominator.node_of(uid)]

    def _handle(self, events: list[Event]) -> None:
        n_before = self.pair.n_fast
        has_nominations = not self.pair.walked.queue.nominator.is_empty
        self._take(self.pair.handle(events, self._now))
        if has_nominations:
            self.n_beside += self.pair.n_fast - n_before

    def _take(self, effects: list[Effect]) -> None:
        self.leaving += [one for one in effects if isinstance(one, to_do.Evict)]


def same_effects(seed: int, kernels: Any = compiled, n_steps: int = N_STEPS) -> int:
    """Run both; returns the number of pods that kernels placed beside nominated ones."""
    found = Preemptions(seed, kernels)
    for _ in range(n_steps):
        found.step()
    found.pair.compare()
    return found.n_beside


@pytest.mark.parametrize("kernels", [compiled, numpy_kernels], ids=["compiled", "numpy"])
def test_runs_beside_nominated_pods_are_those_of_the_walk(kernels: Any) -> None:
    @settings(max_examples=examples(15), deadline=None)
    @given(SEEDS)
    def check(seed: int) -> None:
        same_effects(seed, kernels)

    check()


def test_kernels_place_pods_beside_nominated_ones() -> None:
    assert sum(same_effects(seed) for seed in range(20)) > 10


def nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows where a class does not fit beside the nominated pods stay open."""
    right = NominatedRows.of.__func__  # type: ignore[attr-defined]

    def of(cls: Any, *given: Any) -> NominatedRows:
        found: NominatedRows = right(cls, *given)
        found.closed = found.closed[:0]
        return found

    monkeypatch.setattr(NominatedRows, "of", classmethod(of))


def runs_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is as long as without nominated pods."""
    right = nominated_rows._n_fitting

    def plenty(*given: Any) -> Any:
        found = right(*given)
        return None if found is None else np.where(found > 0, 10**6, found)

    monkeypatch.setattr(nominated_rows, "_n_fitting", plenty)


def equals_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nominated pods of the same priority are not counted."""
    right = nominated_rows.NominatedPodsByRow.of.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        nominated_rows.NominatedPodsByRow,
        "of",
        classmethod(lambda cls, snapshot, priority: right(cls, snapshot, priority + 1)),
    )


def a_pod_counts_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that is nominated itself is placed in a run with its class."""
    monkeypatch.setattr(nominated_rows, "_n_alike", lambda pods, classes, snapshot: 1)


def rows_stay_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is not told that closed rows are open again."""
    right = nominated_rows.ClassArrays.note

    def note(self: Any, rows: Any, n_more: int) -> None:
        right(self, rows if n_more else [], n_more)

    monkeypatch.setattr(nominated_rows.ClassArrays, "note", note)


@pytest.mark.parametrize(
    ("break_it", "seed"),
    [
        (nothing_is_closed, 0),
        (runs_are_whole, 0),
        (equals_are_not_counted, 0),
        (a_pod_counts_itself, 1120656),
        (rows_stay_closed, 80),
    ],
)
def test_control_what_is_left_out_is_noticed(
    break_it: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert_caught(lambda seed: same_effects(seed, n_steps=2 * N_STEPS), SEEDS, known=(seed,))
