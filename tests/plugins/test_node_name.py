"""NodeName: the node that a pod names, or all."""

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from stowplan.columns import NodeTable, Rows
from stowplan.objects.pod import Pod
from stowplan.plugins.node_name import NodeName
from tests.plugins.clusters import Walks, cases, is_caught, node, pod, table

NODES = table([node("a"), node("b")])
REFUSED = f"UnschedulableAndUnresolvable: {NodeName.REJECTED.message}"


@pytest.mark.parametrize(
    ("named", "refused"), [("", ()), ("a", ("b",)), ("b", ("a",)), ("gone", ("a", "b"))]
)
def test_named_node(named: str, refused: tuple[str, ...]) -> None:
    assert Walks(NodeName).refusals(pod(on=named), NODES) == dict.fromkeys(refused, REFUSED)


@given(cases("name"))
def test_walks_agree(case: tuple[Pod, NodeTable]) -> None:
    assert Walks(NodeName).agree(*case)


class TakesTheLastRow(NodeName):
    """Wrong: row -1 of a node that is not there is the last one."""

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.bool_]:
        is_named = np.full(nodes.n_nodes, not pod.node_name)
        is_named[nodes.row(pod.node_name) :][:1] = True
        return is_named[rows]


def test_taking_the_last_row_is_caught() -> None:
    assert is_caught(TakesTheLastRow, "name")


def test_signature_is_the_name() -> None:
    rule = NodeName()
    assert rule.signature(pod(on="a")) != rule.signature(pod(on="b"))
    assert rule.signature(pod(on="a")) == rule.signature(pod("cpu=1", on="a"))
