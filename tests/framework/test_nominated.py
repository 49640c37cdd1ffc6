"""Nominated pods followed: which rows changed, who counts there, and verdicts that are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.columns import NodeTable
from stowplan.framework import Nominations, Snapshot, Status, snapshot, unschedulable
from stowplan.framework.runtime.nominated_pods import NominatedPodsByRow, NominatedVerdicts
from stowplan.framework.runtime.touched_rows import TouchedRows
from stowplan.testing import node, pod
from stowplan.testing.generators.table_changes import NODE_NAMES, random_steps
from tests.property.wrong import assert_caught
from tests.soak import examples

SEEDS = st.integers(0, 2**32 - 1)


def test_nominations_say_where_they_changed() -> None:
    nominations = Nominations()
    began = nominations.generation
    nominations.add(pod("p"), "n1")
    nominations.add(pod("p"), "n2")
    nominations.drop("nobody")
    assert nominations.since(began) == ["n1", "n2"]
    assert len(nominations) == 1
    now = nominations.generation
    assert nominations.since(now) == []
    nominations.add(pod("told that it has none"), "")
    assert nominations.generation == now
    nominations.drop(pod("p").uid)
    assert nominations.since(now) == ["n2"]
    assert len(nominations) == 1


def test_old_changes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "CHANGES_KEPT", 2)
    nominations = Nominations()
    seen = []
    for i in range(9):
        seen.append(nominations.generation)
        nominations.add(pod(f"p{i}"), f"n{i}")
    assert nominations.generation == 9
    assert nominations.since(seen[0]) is None
    assert nominations.since(seen[-1]) == ["n8"]


def test_touched_rows() -> None:
    table, nominations = NodeTable(), Nominations()
    seen = Snapshot(table, nominations=nominations)
    touched = TouchedRows()
    assert touched.take(seen) is None
    assert touched.take(seen) == []
    for name in ("a", "b", "c"):
        table.add_node(node(name))
    assert touched.take(seen) == [0, 1, 2]
    table.add_pod(pod("p", on="b"))
    nominations.add(pod("q"), "c")
    nominations.add(pod("r"), "nowhere")
    assert touched.take(seen) == [1, 2]
    assert touched.take(Snapshot(table, nominations=Nominations())) is None


class Follower:
    """A table with nominations, by the dice."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.table, self.nominations = NodeTable(), Nominations()
        self.snapshot = Snapshot(self.table, nominations=self.nominations)
        self.steps = iter(random_steps(self.rng, 30))

    def step(self) -> bool:
        """False when the story is over."""
        happening = next(self.steps, None)
        if happening is None:
            return False
        happening.apply(self.table)
        for _ in range(2):
            number = int(self.rng.integers(6))
            waiting = pod(f"w{number}", cpu=str(number), priority=5 * (number % 3))
            if self.rng.integers(3):
                self.nominations.add(waiting, NODE_NAMES[self.rng.integers(len(NODE_NAMES))])
            else:
                self.nominations.drop(waiting.uid)
        return True


def check_nominated_counts(seed: int) -> None:
    """Kept sums are those of the pods that count, on every row."""
    walk = Follower(seed)
    while walk.step():
        if walk.rng.integers(3) == 0:
            continue
        asking = pod("asking", priority=5)
        nominated_by_row = NominatedPodsByRow.of(walk.snapshot, 5)
        counted = [walk.nominations.counted(name, asking) for name in walk.table.names]
        assert nominated_by_row.pod_count.tolist() == [len(infos) for infos in counted]
        assert nominated_by_row.requested("cpu").tolist() == [
            sum(info.footprint.requested.get("cpu", 0) for info in infos) for infos in counted
        ]


@settings(max_examples=examples(60))
@given(SEEDS)
def test_nominated_pods_by_row_are_those_that_count(seed: int) -> None:
    check_nominated_counts(seed)


def test_control_nominated_pods_that_stay_where_rows_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a row is taken to be of the same node for ever."""
    right = NominatedPodsByRow._follow

    def follow(self: NominatedPodsByRow, snapshot: Any) -> None:
        if self.pod_count.shape[0] == snapshot.nodes.n_nodes:
            self._shape = snapshot.nodes.shape
        right(self, snapshot)

    monkeypatch.setattr(NominatedPodsByRow, "_follow", follow)
    assert_caught(check_nominated_counts, SEEDS)


def verdicts_are_those_of_now(seed: int) -> None:
    """The kept refusals are those of judging every row; a judge looks at pods and nominations."""
    walk, kept = Follower(seed), NominatedVerdicts()

    def filter_rows(rows: list[int]) -> dict[int, Status]:
        found = {}
        for row in rows:
            name = walk.table.names[row]
            nominated = [i for i in walk.nominations.on(name) if i.uid != asking]
            if nominated and (len(nominated) + len(walk.table.pods[row])) % 3:
                found[row] = unschedulable(f"{len(nominated)} on {name}")
        return found

    while walk.step():
        if walk.rng.integers(3) == 0:
            continue
        asking = f"default/w{walk.rng.integers(6)}"
        own = walk.table.row(walk.nominations.node_of(asking))
        rows, which = kept.follow(walk.snapshot, filter_rows, own)
        statuses = list(kept.statuses)
        got = {row: statuses[i] for row, i in zip(rows.tolist(), which.tolist(), strict=True)}
        assert got == filter_rows(list(range(walk.table.n_nodes)))


@settings(max_examples=examples(60))
@given(SEEDS)
def test_kept_verdicts_are_those_of_now(seed: int) -> None:
    verdicts_are_those_of_now(seed)


def test_control_a_pod_that_speaks_for_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: what a pod makes of its own node stands for the pods that do count it."""
    right = NominatedVerdicts.follow

    def follow(self: NominatedVerdicts, snapshot: Any, filter_rows: Any, own: int) -> Any:
        answer = right(self, snapshot, filter_rows, own)
        self._special = -1
        return answer

    monkeypatch.setattr(NominatedVerdicts, "follow", follow)
    assert_caught(verdicts_are_those_of_now, SEEDS)


def test_control_rows_that_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: only nominations are followed, not what happens to nodes and the pods on them."""
    right = TouchedRows.take

    def take(self: TouchedRows, snapshot: Any) -> list[int] | None:
        self._generation = snapshot.nodes.journal.generation
        return right(self, snapshot)

    monkeypatch.setattr(TouchedRows, "take", take)
    assert_caught(verdicts_are_those_of_now, SEEDS)
