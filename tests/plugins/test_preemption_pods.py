"""Pods ranked per row, disruption budgets over them, and what is left beside a pod."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.columns import NodeInfo, NodeTable
from stowplan.framework import ObjectStore
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.workload import PodDisruptionBudget
from stowplan.plugins.preemption import ranked_pods
from stowplan.plugins.preemption.disruption_budgets import (
    DisruptionBudgetIndex,
    filter_pods_with_pdb_violation,
    pdb_counts_eviction,
)
from stowplan.plugins.preemption.ranked_pods import (
    RankedPods,
    expand_ranges,
    pod_importance,
    pod_start_time,
)
from stowplan.plugins.preemption.victim_selector import RemainingResources, sums_fit_int64
from stowplan.testing import node
from stowplan.testing.generators.table_changes import random_steps
from tests.plugins.preemption_walk import made_budget, made_pod
from tests.property.wrong import assert_caught
from tests.soak import examples

SEEDS = st.integers(0, 2**32 - 1)
LIMITED = 2**62
TIGHT = 1.25
"""The least waste that rows laid out anew keep within."""


def ranks_follow(seed: int) -> None:
    """Whatever happens to a table, asked about any rows: the pods of each, sorted, in its slots."""
    rng = np.random.default_rng(seed)
    table, ranked = NodeTable(), RankedPods()
    for step in random_steps(rng, 50):
        step.apply(table)
        if table.n_nodes == 0 or rng.integers(3) == 0:
            continue
        rows = np.flatnonzero(rng.integers(0, 2, table.n_nodes))
        ranked.follow(table, rows)
        taken: set[int] = set()
        for row in rows.tolist():
            pods = sorted(table.pods[row], key=pod_importance)
            assert ranked.pods[row] == pods
            slots = range(ranked.first[row], ranked.first[row] + ranked.length[row])
            assert ranked.priority[slots].tolist() == [i.pod.priority for i in pods]
            assert ranked.start[slots].tolist() == [pod_start_time(i.pod) for i in pods]
            requests = [i.footprint.requested.get("cpu", 0) for i in pods]
            assert ranked.amounts("cpu")[slots].tolist() == requests
            assert taken.isdisjoint(slots)
            assert max(slots, default=0) < max(ranked.n_slots, 1)
            taken.update(slots)
        assert ranked.below(rows, 10).tolist() == [
            sum(i.pod.priority < 10 for i in table.pods[row]) for row in rows.tolist()
        ]


@pytest.mark.parametrize("waste_max", [TIGHT, ranked_pods.UNUSED_SLOTS_FACTOR])
def test_ranks_follow_the_table(waste_max: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranked_pods, "UNUSED_SLOTS_FACTOR", waste_max)

    @settings(max_examples=examples(40))
    @given(SEEDS)
    def check(seed: int) -> None:
        ranks_follow(seed)

    check()


def half_ranked(self: RankedPods, table: NodeTable, rows: Any) -> None:
    """Wrong: after all rows have been laid out anew, those that were not touched stay unranked."""
    self._note_touched(table)
    self._rank(table, rows[self._stale[rows]])


def unresized(self: RankedPods, rows: Any, length: Any) -> None:
    """Wrong: a row keeps its slots when it has got more pods."""
    self.length[rows] = length
    moving = rows[self._room[rows] == 0]
    self._room[moving] = self.length[moving]
    self.first[moving] = self._n_slots + np.cumsum(self.length[moving]) - self.length[moving]
    self._grow(self._n_slots + int(self.length[moving].sum()))


@pytest.mark.parametrize(
    ("name", "wrong"), [("follow", half_ranked), ("_allocate_slots", unresized)]
)
def test_control_ranks(
    name: str, wrong: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranked_pods, "UNUSED_SLOTS_FACTOR", TIGHT)
    monkeypatch.setattr(RankedPods, name, wrong)

    def check(seed: int) -> None:
        try:
            ranks_follow(seed)
        except (KeyError, IndexError) as failure:
            raise AssertionError(str(failure)) from failure

    assert_caught(check, SEEDS)


def test_spans() -> None:
    numbers, owners = expand_ranges(np.array([7, 3, 9]), np.array([2, 0, 3]))
    assert numbers.tolist() == [7, 8, 9, 10, 11]
    assert owners.tolist() == [0, 0, 2, 2, 2]


# Budgets.


def protected_as_split(seed: int) -> None:
    """The pods that are protected, all rows at a time, are those of the walk over each."""
    rng = np.random.default_rng(seed)
    object_store, budgets = ObjectStore(), DisruptionBudgetIndex()
    kept: dict[int, list[int]] = {}
    rows = [
        [
            made_pod(f"p{row}-{i}", {}, labels={"app": "xyz"[rng.integers(3)]}, on="n")
            for i in range(rng.integers(0, 6))
        ]
        for row in range(4)
    ]
    for _ in range(4):
        name, app = (("one", "x"), ("two", "y"), ("three", "x"))[rng.integers(3)]
        gone = ("p0-0", "p1-0") if rng.integers(2) else ()
        object_store.put(made_budget(name, app, int(rng.integers(0, 3)), gone))
        before = budgets.cover
        budgets.follow(object_store)
        if budgets.cover is not before:
            kept.clear()
        table = NodeTable()
        for row, pods in enumerate(rows):
            table.add_node(node("n"))
            for pod in pods:
                table.add_pod(pod)
            if row not in kept:
                kept[row] = [budgets.group_of(i.pod) for i in table.pods[0]]
            wanted = filter_pods_with_pdb_violation(
                table.pods[0], list(object_store.all(PodDisruptionBudget))
            )[0]
            groups = np.array(kept[row], dtype=np.int64)
            got = budgets.protected(groups, np.full(len(groups), row))
            assert [i for i, yes in zip(table.pods[0], got, strict=True) if yes] == wanted
            table = NodeTable()
        flat = [group for row in sorted(kept) for group in kept[row]]
        owners = np.repeat(np.arange(4), [len(kept[row]) for row in range(4)])
        apart = [
            budgets.protected(np.array(kept[row], dtype=np.int64), np.full(len(kept[row]), row))
            for row in range(4)
        ]
        together = budgets.protected(np.array(flat, dtype=np.int64), owners)
        assert together.tolist() == np.concatenate(apart).tolist()


@settings(max_examples=examples(60))
@given(SEEDS)
def test_the_protected_are_those_of_the_walk(seed: int) -> None:
    protected_as_split(seed)


def test_control_budgets_that_keep_who_is_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a pod that has been disrupted since goes on being counted."""
    monkeypatch.setattr(
        "stowplan.plugins.preemption.disruption_budgets._selection_key", lambda budget: budget.name
    )
    assert_caught(protected_as_split, SEEDS)


def test_control_budgets_that_run_on_from_row_to_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an eviction on one node takes from the budget of the next."""
    right = DisruptionBudgetIndex.protected
    monkeypatch.setattr(
        DisruptionBudgetIndex,
        "protected",
        lambda self, groups, owners: right(self, groups, owners * 0),
    )
    assert_caught(protected_as_split, SEEDS)


@pytest.mark.parametrize(
    ("labels", "selector", "disrupted", "yes"),
    [
        ({"app": "x"}, {"matchLabels": {"app": "x"}}, {}, True),
        ({"app": "y"}, {"matchLabels": {"app": "x"}}, {}, False),
        ({"app": "x"}, {"matchLabels": {"app": "x"}}, {"p": ""}, False),
        ({"app": "x"}, {}, {}, False),
        ({}, {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {}, False),
        ({"app": "x"}, {"matchExpressions": [{"key": "app", "operator": "Odd"}]}, {}, False),
    ],
)
def test_whom_a_budget_covers(
    labels: dict[str, str], selector: dict[str, Any], disrupted: dict[str, str], yes: bool
) -> None:
    tree = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": selector},
        "status": {"disruptedPods": disrupted},
    }
    pod = made_pod("p", {}, labels=labels)
    assert pdb_counts_eviction(convert(tree, PodDisruptionBudget), pod) is yes


# Slack.


def test_pods_come_back_while_there_is_enough() -> None:
    table = NodeTable()
    table.add_node(node("n", cpu="4", pods=4))
    for name, cpu in (("a", "1"), ("b", "2"), ("c", "500m"), ("d", "500m"), ("e", "0")):
        table.add_pod(made_pod(name, {"cpu": cpu}, on="n"))
    infos = table.pods[0]
    slack = RemainingResources((("cpu", 2000),), NodeInfo(table.nodes[0]), ())
    assert [slack.takes(info) for info in infos] == [True, False, True, True, False]
    crowded = RemainingResources((("cpu", 2000),), NodeInfo(table.nodes[0]), infos[:1])
    assert [crowded.takes(info) for info in infos[1:]] == [False, True, True, False]


def test_sums_beyond_64_bits_are_not_tame() -> None:
    info = NodeInfo(node("n", resources={"memory": LIMITED}))
    table = NodeTable()
    table.add_node(node("n"))
    table.add_pod(made_pod("a", {"memory": str(LIMITED)}, on="n"))
    assert sums_fit_int64((("memory", LIMITED - 1),), info, table.pods[0])
    assert not sums_fit_int64((("memory", LIMITED),), info, table.pods[0])
