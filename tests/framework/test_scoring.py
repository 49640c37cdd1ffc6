"""PreScore, Score, NormalizeScore and weights.

Source: kube-scheduler v1.36, framework/runtime RunPreScorePlugins, RunScorePlugins.
"""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stowplan.framework import (
    OK,
    SKIP,
    Code,
    ContractError,
    CycleState,
    NodeInfo,
    NodeTable,
    Rows,
    Snapshot,
    Status,
    error,
    unschedulable,
)
from stowplan.framework.runtime.outcomes import Scores
from tests.framework.stage import POD, framework_of, plugin, snapshot

Ints = NDArray[np.int64]
ALL = np.arange(3)


def scored(*plugins: type[Any], rows: Ints = ALL, columns: bool = True, **weights: int) -> Scores:
    framework, seen, state = (
        framework_of(*plugins, columns=columns, **weights),
        snapshot(),
        CycleState(),
    )
    assert framework.run_pre_score(POD, seen, rows, state) == OK
    return framework.run_scores(POD, seen.nodes, rows, state)


def by_name(name: str, **members: Any) -> type[Any]:
    """Scores n1, n2, n3 with 10, 20, 30."""

    def score(self: Any, node: NodeInfo) -> int:
        return 10 * int(node.name[1:])

    return plugin(name, score=score, **members)


def test_scores_are_weighed_and_added() -> None:
    found = scored(by_name("A"), plugin("B", score=7), A=3, B=2)
    assert {name: column.tolist() for name, column in found.raw.items()} == {
        "A": [10, 20, 30],
        "B": [7, 7, 7],
    }
    assert {name: column.tolist() for name, column in found.final.items()} == {
        "A": [30, 60, 90],
        "B": [14, 14, 14],
    }
    assert found.total.tolist() == [44, 74, 104]
    assert found.total.dtype == np.int64


def test_some_rows_are_scored_in_their_order() -> None:
    found = scored(by_name("A"), rows=np.array([0, 2]))
    assert (found.rows.tolist(), found.total.tolist()) == ([0, 2], [10, 30])


def test_no_plugin_scores() -> None:
    found = scored()
    assert (found.raw, found.total.tolist()) == ({}, [0, 0, 0])


def test_normalising_sees_all_scores_and_comes_before_the_weight() -> None:
    def normalize_score(self: Any, scores: Ints, rows: Rows, nodes: NodeTable) -> Ints:
        assert nodes.n_nodes == 3
        return scores * 100 // scores.max()

    found = scored(by_name("A", normalize_score=normalize_score), A=2)
    assert found.raw["A"].tolist() == [10, 20, 30]
    assert found.final["A"].tolist() == [66, 132, 200]


def test_raw_scores_may_be_anything_that_normalising_brings_into_range() -> None:
    def normalize_score(self: Any, scores: Ints) -> Ints:
        return np.clip(scores, 0, 100)

    wild = plugin(
        "A",
        score=lambda self, node: -5 if node.name == "n1" else 10**15,
        normalize_score=normalize_score,
    )
    found = scored(wild)
    assert found.raw["A"].tolist() == [-5, 10**15, 10**15]
    assert found.final["A"].tolist() == [0, 100, 100]


@pytest.mark.parametrize("score", [-1, 101])
def test_a_score_out_of_range_names_profile_plugin_node_and_pod(score: int) -> None:
    def one(self: Any, node: NodeInfo) -> int:
        return score if node.name == "n2" else 0

    with pytest.raises(ContractError) as caught:
        scored(plugin("A", score=one))
    assert str(caught.value) == (
        f"profile 'test': plugin 'A' scores {score} on node 'n2' for pod 'default/web'; "
        f"expected 0..100 (test_scoring.py:{one.__code__.co_firstlineno})"
    )


@pytest.mark.parametrize("score", [0.5, "5", None, True, 2**63])
def test_a_score_is_a_whole_number(score: object) -> None:
    with pytest.raises(ContractError) as caught:
        scored(plugin("A", score=score))
    assert str(caught.value).startswith(
        f"plugin 'A': score of pod 'default/web' on node 'n1' is {score!r}; "
        "expected a whole number of 64 bits (stage.py:"
    )


@pytest.mark.parametrize(
    ("normal", "message"),
    [
        ([1, 2, 3], "gave a list; expected an array int64 (3,)"),
        (np.ones(3), "gave float64 (3,); expected an array int64 (3,)"),
        (np.ones(2, dtype=np.int64), "gave int64 (2,); expected an array int64 (3,)"),
    ],
)
def test_normalising_gives_an_array_of_whole_numbers(normal: Any, message: str) -> None:
    with pytest.raises(ContractError) as caught:
        scored(by_name("A", normalize_score=normal))
    assert f"plugin 'A': normalize_score of pod 'default/web' {message}" in str(caught.value)


class ByColumn:
    """The column walk of a score, for all rows or for those that are asked for."""

    name = "ByColumn"

    def score(self, node: NodeInfo) -> int:
        return 10 * int(node.name[1:])

    def score_column(self, nodes: NodeTable) -> Ints:
        return np.array([10 * int(name[1:]) for name in nodes.names], dtype=np.int64)


class ByRows(ByColumn):
    name = "ByRows"

    def score_column(self, nodes: NodeTable, rows: Rows) -> Ints:  # type: ignore[override]
        return super().score_column(nodes)[rows]


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 0], []])
def test_columns_give_what_nodes_give(columns: bool, rows: list[int]) -> None:
    found = scored(ByColumn, ByRows, rows=np.array(rows, dtype=np.int64), columns=columns)
    wanted = [10 * (row + 1) for row in rows]
    assert found.raw["ByColumn"].tolist() == found.raw["ByRows"].tolist() == wanted


def test_scores_apart_are_raw() -> None:
    framework, nodes = (
        framework_of(by_name("A", normalize_score=np.zeros(3)), A=5),
        snapshot().nodes,
    )
    apart = framework.scores_separately(POD, nodes, nodes.all_rows, CycleState())
    assert apart["A"].tolist() == [10, 20, 30]


# PreScore.


def test_a_plugin_that_skips_does_not_score() -> None:
    found = scored(by_name("A", pre_score=SKIP), plugin("B", score=7))
    assert list(found.raw) == ["B"]
    assert found.total.tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (error("broken"), "broken"),
        (unschedulable("no room"), "no room"),
        (Status(Code.WAIT, ("hold on",)), "hold on"),
    ],
)
def test_any_other_answer_of_pre_score_is_an_error(answer: Status, message: str) -> None:
    framework = framework_of(plugin("A", pre_score=answer), plugin("B", pre_score=SKIP))
    state = CycleState()
    status = framework.run_pre_score(POD, snapshot(), ALL, state)
    assert status == error(f'running PreScore plugin "A": {message}').by("A")
    assert state.skip_score == set()


def test_pre_score_sees_the_rows_that_passed() -> None:
    seen: list[Any] = []

    def pre_score(self: Any, rows: Rows, snapshot: Snapshot) -> Status:
        seen.append(rows if isinstance(rows, slice) else rows.tolist())
        return OK

    framework = framework_of(plugin("A", pre_score=pre_score))
    framework.run_pre_score(POD, snapshot(), np.array([0, 2]), CycleState())
    framework.run_pre_score(POD, snapshot(), ALL, CycleState())
    assert seen == [[0, 2], slice(0, 3)]
