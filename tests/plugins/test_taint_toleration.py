"""TaintToleration: hard taints refuse, soft ones cost points."""

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from stowplan.columns import NodeTable, Rows
from stowplan.objects.pod import Pod
from stowplan.plugins.taint_toleration import TaintToleration
from tests.plugins.clusters import Walks, cases, effect, effects, is_caught, node, pod, table

REFUSED = f"UnschedulableAndUnresolvable: {TaintToleration.REJECTED.message}"
NODES = table(
    [
        node("free"),
        node("sched", taints="gpu=a:NoSchedule"),
        node("exec", taints="gpu=a:NoExecute"),
        node("soft", taints="gpu=a:PreferNoSchedule"),
        node("both", taints="gpu=a:NoSchedule gpu=b:NoExecute"),
    ]
)


def tolerating(text: str, operator: str = "Equal") -> Pod:
    return pod(tolerations=[{**one, "operator": operator} for one in effects(text) or [effect("")]])


@pytest.mark.parametrize(
    ("one", "refused"),
    [
        (pod(), "sched exec both"),
        (tolerating("gpu=a"), "both"),
        (tolerating("gpu=a:NoSchedule"), "exec both"),
        (tolerating("gpu", "Exists"), ""),
        (tolerating("gpu=a gpu=b"), ""),
        (tolerating("gpu=b"), "sched exec both"),
    ],
)
def test_hard_taints(one: Pod, refused: str) -> None:
    found = Walks(TaintToleration).refusals(one, NODES)
    assert found == dict.fromkeys(refused.split(), REFUSED)


def test_soft_taints_are_counted_and_normalised() -> None:
    nodes = table(
        [
            node("none"),
            node("one", taints="a:PreferNoSchedule b:NoSchedule"),
            node("three", taints="a:PreferNoSchedule a=1:PreferNoSchedule c:PreferNoSchedule"),
        ]
    )
    walks = Walks(TaintToleration)
    assert walks.raw(pod(), nodes) == {"none": 0, "one": 1, "three": 3}
    assert walks.final(pod(), nodes) == {"none": 100, "one": 67, "three": 0}
    # A toleration for another effect does not count.
    assert walks.raw(tolerating("c:NoSchedule", "Exists"), nodes)["three"] == 3
    assert walks.raw(tolerating("c", "Exists"), nodes)["three"] == 2
    assert walks.final(tolerating("", "Exists"), nodes) == {"none": 100, "one": 100, "three": 100}


def test_comparisons_need_their_gate() -> None:
    nodes = table(
        [node("low", taints="tier=3:NoSchedule"), node("high", taints="tier=9:NoSchedule")]
    )
    below = tolerating("tier=5", "Lt")
    assert Walks(TaintToleration).refusals(below, nodes).keys() == {"low", "high"}
    gated = Walks(TaintToleration, taint_toleration_comparison_operators=True)
    assert gated.refusals(below, nodes).keys() == {"high"}


@given(cases("taints"))
def test_walks_agree(case: tuple[Pod, NodeTable]) -> None:
    assert Walks(TaintToleration).agree(*case)


class ForgetsNoExecute(TaintToleration):
    """Wrong: the column walk filters on one effect only."""

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.bool_]:
        only = frozenset({"NoSchedule"})
        return nodes.taints.count_where(lambda t: self.is_untolerated(t, pod, only), rows) == 0


class CountsATaintOnce(TaintToleration):
    """Wrong: a taint that stands on a node twice counts once in the column walk."""

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.int64]:
        return np.minimum(super().score_column(pod, nodes, rows), 1)


@pytest.mark.parametrize("wrong", [ForgetsNoExecute, CountsATaintOnce])
def test_wrong_columns_are_caught(wrong: type[TaintToleration]) -> None:
    assert is_caught(wrong, "taints")


def test_signature_ignores_order_and_seconds() -> None:
    rule = Walks(TaintToleration).rows.members["TaintToleration"].plugin
    one, two = {"key": "a", "tolerationSeconds": 5}, {"key": "b"}
    assert rule.signature(pod(tolerations=[one, two])) == rule.signature(
        pod(tolerations=[two, {"key": "a"}])
    )
    assert rule.signature(pod(tolerations=[one])) != rule.signature(pod(tolerations=[two]))
