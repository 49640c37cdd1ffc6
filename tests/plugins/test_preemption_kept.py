"""Dry runs that are kept, by arithmetic and by slack, say what those done anew say.

Each wrong variant leaves out one thing that an outcome depends on, or one turn of the walk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.framework.runtime import touched_rows
from stowplan.plugins.preemption import default_preemption, dry_run_cache, vector_dry_run
from stowplan.plugins.preemption.default_preemption import DefaultPreemptionArgs
from stowplan.plugins.preemption.disruption_budgets import DisruptionBudgetIndex
from stowplan.plugins.preemption.dry_runs import DryRunResults
from stowplan.plugins.preemption.victim_selector import RemainingResources
from tests.plugins.preemption_walk import PreemptionWalk, framework, outcome_of
from tests.property.wrong import assert_caught
from tests.soak import examples

SEEDS = st.integers(0, 2**32 - 1)
N_STEPS = 12
NEVER = 10**9

ByMany = int


def kept_is_anew(
    seed: int, args: DefaultPreemptionArgs | None = None, n_steps: int = N_STEPS
) -> None:
    """After every step the framework that keeps says what the one does that keeps nothing."""
    rng = np.random.default_rng(seed)
    walk = PreemptionWalk(rng)
    keeping, anew = (framework(columns=columns, args=args) for columns in (True, False))
    for _ in range(n_steps):
        walk.step()
        for _ in range(2):
            pod = walk.preemptor()
            got, wanted = (outcome_of(each, pod, walk.snapshot) for each in (keeping, anew))
            assert got == wanted, f"seed {seed}, pod {pod.name}"
            if wanted["victims"] and rng.integers(3) == 0:
                walk.preempt(pod, wanted["nominated"], wanted["victims"])


@pytest.fixture
def from_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From how many rows on dry runs are done by arithmetic."""
    monkeypatch.setattr(default_preemption, "VECTOR_DRY_RUN_MIN", request.param)


@pytest.mark.usefixtures("from_rows")
@pytest.mark.parametrize("from_rows", [1, 3, NEVER], indirect=True)
@pytest.mark.parametrize("args", [None, DefaultPreemptionArgs(10, 2)], ids=["all", "some"])
def test_kept_dry_runs_are_those_done_anew(args: DefaultPreemptionArgs | None) -> None:
    @settings(max_examples=examples(40), deadline=None)
    @given(SEEDS)
    def check(seed: int) -> None:
        kept_is_anew(seed, args)

    check()


def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nominations are not listened to."""
    monkeypatch.setattr(touched_rows.Nominations, "generation", 0)


def unbudgeted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets are looked up once."""
    right = DisruptionBudgetIndex.follow

    def follow(self: DisruptionBudgetIndex, object_store: Any) -> None:
        if self._object_store is None:
            right(self, object_store)

    monkeypatch.setattr(DisruptionBudgetIndex, "follow", follow)


def unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with pods under a budget that allows more or less now are left as they were."""
    monkeypatch.setattr(
        DisruptionBudgetIndex,
        "groups_under",
        lambda self, budgets: np.zeros(len(self._groups), dtype=np.bool_),
    )


def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found where a pod is nominated itself stands for all of its class."""
    right = dry_run_cache.CachedClassDryRuns.settle
    monkeypatch.setattr(
        dry_run_cache.CachedClassDryRuns, "settle", lambda self, rows, own: right(self, rows, -1)
    )


def slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots are not counted."""
    right = RemainingResources.__init__

    def begin(self: RemainingResources, *given: Any) -> None:
        right(self, *given)
        self._slots = 1000

    monkeypatch.setattr(RemainingResources, "__init__", begin)


def pod_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod keeps the fate of the one that had its slot before."""

    class Kept(np.ndarray[Any, Any]):
        def __setitem__(self, key: Any, value: Any) -> None:
            if not np.isscalar(value):
                super().__setitem__(key, np.maximum(self[key], value))

    right = DryRunResults.make_room

    def make_room(self: DryRunResults, n_rows: int) -> None:
        right(self, n_rows)
        self.pod_outcomes = self.pod_outcomes.view(Kept)

    monkeypatch.setattr(DryRunResults, "make_room", make_room)


def order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The protected do not come back first."""
    monkeypatch.setattr(
        DisruptionBudgetIndex,
        "protected",
        lambda self, groups, owners: np.zeros(len(groups), dtype=np.bool_),
    )


def nominated_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nominated pods of the same priority are not counted."""
    right = vector_dry_run.NominatedPodsByRow.of.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        vector_dry_run.NominatedPodsByRow,
        "of",
        classmethod(lambda cls, snapshot, priority: right(cls, snapshot, priority + 1)),
    )


@pytest.mark.usefixtures("from_rows")
@pytest.mark.parametrize(
    ("from_rows", "break_it"),
    [
        (1, deaf),
        (1, unbudgeted),
        (1, unchanged),
        (1, own),
        (NEVER, own),
        (NEVER, slots),
        (1, pod_outcomes),
        (1, order),
        (1, nominated_pods),
    ],
    indirect=["from_rows"],
)
def test_control_what_is_left_out_is_missed(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert_caught(lambda seed: kept_is_anew(seed, n_steps=2 * N_STEPS), SEEDS)
