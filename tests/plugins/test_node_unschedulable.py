"""NodeUnschedulable: cordoned nodes, and the pods that do not mind."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from stowplan.columns import NodeTable, Rows
from stowplan.objects.pod import Pod
from stowplan.plugins.node_unschedulable import NodeUnschedulable
from tests.plugins.clusters import Walks, cases, is_caught, node, pod, table

NODES = table([node("open"), node("cordoned", cordoned=True)])
REFUSED = {"cordoned": f"UnschedulableAndUnresolvable: {NodeUnschedulable.REJECTED.message}"}
KEY = "node.kubernetes.io/unschedulable"


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": KEY, "operator": "Exists"}, True),
        ({"key": KEY, "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": KEY}, True),
        ({"operator": "Exists"}, True),
        ({"key": KEY, "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": KEY, "value": "x"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: dict[str, Any], tolerated: bool) -> None:
    found = Walks(NodeUnschedulable).refusals(pod(tolerations=[toleration]), NODES)
    assert found == ({} if tolerated else REFUSED)


def test_without_tolerations() -> None:
    assert Walks(NodeUnschedulable).refusals(pod(), NODES) == REFUSED


@given(cases("taints"))
def test_walks_agree(case: tuple[Pod, NodeTable]) -> None:
    assert Walks(NodeUnschedulable).agree(*case)


class IgnoresTolerations(NodeUnschedulable):
    """Wrong: the column walk keeps everybody off."""

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.bool_]:
        return ~nodes.unschedulable[rows]


def test_ignoring_tolerations_is_caught() -> None:
    assert is_caught(IgnoresTolerations, "taints")
