"""PlacedPriorities: the lowest priority on nodes, and what DefaultPreemption leaves out by it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.columns.nodetable import table_of
from stowplan.plugins.preemption_priorities import NOBODY, PlacedPriorities
from stowplan.testing import node, pod
from stowplan.testing.dice import chance, number, pick
from tests.soak import examples

SEEDS = st.integers(0, 2**32 - 1)


def follow(seed: int, n_steps: int = 30) -> None:
    """Pods come, change and go on two nodes, one of which may leave with its pods."""
    dice = np.random.default_rng(seed)
    table = table_of([node("n1"), node("n2")])
    kept = PlacedPriorities.on(table)
    there: dict[str, int] = {}
    for step in range(n_steps):
        if there and chance(dice, 2):
            uid = pick(dice, tuple(there))
            if chance(dice, 2):
                del there[uid]
                table.remove_pod(uid)
            else:
                there[uid] = number(dice, -2, 2)
                on = table.names[table.row_of_pod(uid)]
                table.update_pod(pod(uid, uid=uid, priority=there[uid], on=on))
        else:
            uid = f"p{step}"
            there[uid] = number(dice, -2, 2)
            table.add_pod(pod(uid, uid=uid, priority=there[uid]), pick(dice, table.names))
        assert kept.lowest == min(there.values(), default=NOBODY)


@settings(max_examples=examples(40))
@given(SEEDS)
def test_the_lowest_priority_is_followed(seed: int) -> None:
    follow(seed)


def follow_often() -> None:
    for seed in range(50):
        follow(seed)


def test_a_lowest_that_only_sinks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: nobody looks again when the last pod of the lowest priority has left."""
    monkeypatch.setattr(PlacedPriorities, "pod_removed", lambda self, row, info: None)
    with pytest.raises(AssertionError):
        follow_often()


def test_an_absent_priority_counts_as_none() -> None:
    there = pod("p1", on="n1")
    table = table_of([node("n1")], [replace(there, spec=replace(there.spec, priority=None))])
    assert PlacedPriorities.on(table).lowest == 0
