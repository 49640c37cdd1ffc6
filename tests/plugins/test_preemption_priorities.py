"""PlacedPriorities: the lowest priority on nodes, and what DefaultPreemption leaves out by it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.columns.nodetable import table_of
from stowplan.plugins.preemption.default_preemption import NO_PODS, AssignedPodPriorities
from stowplan.testing import node, pod
from stowplan.testing.generators.choices import chance, pick, random_int
from tests.soak import examples

SEEDS = st.integers(0, 2**32 - 1)


def follow(seed: int, n_steps: int = 30) -> None:
    """Pods come, change and go on two nodes, one of which may leave with its pods."""
    rng = np.random.default_rng(seed)
    table = table_of([node("n1"), node("n2")])
    kept = AssignedPodPriorities.of(table)
    there: dict[str, int] = {}
    for step in range(n_steps):
        if there and chance(rng, 2):
            uid = pick(rng, tuple(there))
            if chance(rng, 2):
                del there[uid]
                table.remove_pod(uid)
            else:
                there[uid] = random_int(rng, -2, 2)
                on = table.names[table.row_of_pod(uid)]
                table.update_pod(pod(uid, uid=uid, priority=there[uid], on=on))
        else:
            uid = f"p{step}"
            there[uid] = random_int(rng, -2, 2)
            table.add_pod(pod(uid, uid=uid, priority=there[uid]), pick(rng, table.names))
        assert kept.lowest == min(there.values(), default=NO_PODS)


@settings(max_examples=examples(40))
@given(SEEDS)
def test_the_lowest_priority_is_followed(seed: int) -> None:
    follow(seed)


def follow_often() -> None:
    for seed in range(50):
        follow(seed)


def test_a_lowest_that_only_sinks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: nobody looks again when the last pod of the lowest priority has left."""
    monkeypatch.setattr(AssignedPodPriorities, "pod_removed", lambda self, row, info: None)
    with pytest.raises(AssertionError):
        follow_often()


def test_an_absent_priority_counts_as_none() -> None:
    there = pod("p1", on="n1")
    table = table_of([node("n1")], [replace(there, spec=replace(there.spec, priority=None))])
    assert AssignedPodPriorities.of(table).lowest == 0
