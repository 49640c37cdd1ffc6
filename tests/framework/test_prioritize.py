"""PrioritizeNodes: functions and maps, weighed and added up, failing together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stowplan.columns import NodeInfo, NodeTable, Rows
from stowplan.framework import OK, CycleState, Snapshot
from stowplan.framework.functions.priorities import Priority, normalize_reduce
from stowplan.framework.runtime.prioritize_nodes import (
    ExtenderError,
    PrioritiesFailed,
    Prioritized,
    priorities_of,
    prioritize_nodes,
)
from stowplan.objects.pod import Pod
from tests.framework.stage import POD, framework_of, plugin, snapshot

Ints = NDArray[np.int64]
NODES = snapshot("node  cpu\nn1    4\nn2    8\nn3    2").nodes


def cpu(pod: Pod, node: NodeInfo, metadata: Any) -> int:
    return node.allocatable["cpu"] // 1000


def last(pod: Pod, nodes: NodeTable, rows: Rows, metadata: Any) -> Ints:
    scores = np.zeros(nodes.n_nodes, dtype=np.int64)[rows]
    scores[-1] = 10
    return scores


CPU = Priority("cpu", map=cpu, reduce=normalize_reduce())
LAST = Priority("last", 3, whole_list=last)


def scored(*priorities: Priority, **more: Any) -> Prioritized:
    return prioritize_nodes(POD, NODES, priorities, **more)


def test_functions_and_maps_are_weighed_and_added_up() -> None:
    found = scored(CPU, LAST)
    assert found.mapped["cpu"].tolist() == [4, 8, 2]
    assert "last" not in found.mapped
    assert found.scores["cpu"].tolist() == [5, 10, 2]
    assert found.totals.tolist() == [5, 10, 32]
    assert (found.node_names, found.top) == (("n1", "n2", "n3"), ("n3",))


def test_only_the_rows_asked_for_count() -> None:
    found = scored(CPU, LAST, rows=np.array([2, 0]))
    assert found.scores["cpu"].tolist() == [5, 10]
    assert found.totals.tolist() == [5, 40]
    assert found.node_names == ("n3", "n1")


def test_without_priorities_every_node_scores_one() -> None:
    assert scored().totals.tolist() == [1, 1, 1]
    assert scored().top == ("n1", "n2", "n3")
    assert scored(extenders=[Fixed({})]).totals.tolist() == [0, 0, 0]
    empty = prioritize_nodes(POD, NODES, [CPU], rows=np.zeros(0, dtype=np.int64))
    assert (empty.totals.tolist(), empty.top) == ([], ())


def test_metadata_is_computed_once_and_handed_to_every_function() -> None:
    made: list[str] = []

    def metadata(pod: Pod) -> str:
        made.append(pod.name)
        return "known"

    def uses(pod: Pod, node: NodeInfo, metadata: Any) -> int:
        return int(metadata == "known")

    def reduce(scores: Ints, pod: Pod, nodes: NodeTable, rows: Rows, metadata: Any) -> Ints:
        return scores * (2 if metadata == "known" else 0)

    first = Priority("first", map=uses, reduce=reduce)
    own = Priority("own", map=uses, metadata=lambda pod: "own")
    found = scored(first, Priority("second", map=uses), own, metadata=metadata)
    assert found.totals.tolist() == [3, 3, 3]
    assert made == [POD.name]


class Fixed:
    """An extender that says what it was made with, or fails."""

    weight = 2

    def __init__(self, scores: dict[str, int] | None, *, interested: bool = True) -> None:
        self.scores = scores
        self.interested = interested

    def is_interested(self, pod: Pod) -> bool:
        return self.interested

    def prioritize(self, pod: Pod, node_names: Sequence[str]) -> dict[str, int]:
        if self.scores is None:
            raise ExtenderError("no answer")
        return self.scores


def test_extenders_add_to_the_totals_and_what_they_fail_with_is_ignored() -> None:
    extenders = [Fixed({"n2": 5}), Fixed(None), Fixed({"n1": 9}, interested=False)]
    assert scored(CPU, extenders=extenders).totals.tolist() == [5, 20, 2]


def test_what_fails_is_named_together() -> None:
    def crash(pod: Pod, node: NodeInfo, metadata: Any) -> int:
        raise ValueError(f"no {node.name}")

    def short(pod: Pod, nodes: NodeTable, rows: Rows, metadata: Any) -> Ints:
        return np.zeros(1, dtype=np.int64)

    with pytest.raises(PrioritiesFailed) as caught:
        scored(CPU, Priority("crash", map=crash), Priority("short", whole_list=short))
    texts = caught.value.errors
    assert len(texts) == 4
    for text, name in zip(texts, ("n1", "n2", "n3"), strict=False):
        wanted = f"priority 'crash': map of pod 'default/web' on node '{name}' raised ValueError"
        assert text.startswith(wanted)
    wanted = "priority 'short': whole_list of pod 'default/web' gave int64 (1,); expected an array"
    assert texts[3].startswith(wanted)
    assert str(caught.value).startswith("[")


@pytest.mark.parametrize(
    ("priority", "message"),
    [
        (Priority("high", map=lambda p, n, m: 11), "on node 'n1' is 11; expected 0..10"),
        (
            Priority("half", map=lambda p, n, m: 0.5),
            "on node 'n1' gave 0.5; expected a whole number",
        ),
        (Priority("list", whole_list=lambda p, n, r, m: [1]), "gave a list; expected an array"),  # type: ignore[arg-type,return-value]
        (
            Priority("low", map=cpu, reduce=lambda s, *_: s - 5),
            "on node 'n1' is -1; expected 0..10",
        ),
        (
            Priority("lost", map=cpu, metadata=lambda pod: {}["x"]),
            "metadata of pod 'default/web' raised KeyError",
        ),
    ],
)
def test_what_a_function_gives_is_checked(priority: Priority, message: str) -> None:
    with pytest.raises(PrioritiesFailed) as caught:
        scored(priority)
    assert message in str(caught.value)
    assert f"priority '{priority.name}'" in str(caught.value)


def test_score_plugins_are_priorities_too() -> None:
    def half(self: Any, scores: Ints) -> Ints:
        return scores // 2

    def prepare(self: Any, state: CycleState) -> Any:
        state.write("seen", True)
        return OK

    def seen(self: Any, node: NodeInfo, state: CycleState) -> int:
        return state.read("seen", bool) + node.allocatable["cpu"] // 1000

    framework = framework_of(plugin("A", pre_score=prepare, score=seen, normalize_score=half), A=3)
    priorities = priorities_of(framework, Snapshot(NODES))
    found = prioritize_nodes(POD, NODES, priorities)
    assert found.mapped["A"].tolist() == [5, 9, 3]
    assert found.totals.tolist() == [6, 12, 3]
