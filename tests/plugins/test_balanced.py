"""NodeResourcesBalancedAllocation: how much a pod evens out the use of a node."""

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stowplan.columns import NodeTable, Rows
from stowplan.framework import OK, SKIP
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.pod import Pod
from stowplan.plugins.resources.balanced_allocation import (
    NodeResourcesBalancedAllocation,
    NodeResourcesBalancedAllocationArgs,
    balanced_allocation_score,
)
from stowplan.plugins.resources.resource_allocation import ResourceUtilization, score_resources
from tests.plugins.clusters import Walks, cases, container, is_caught, is_found, node, pod, table

GPU = "example.com/gpu"
NODES = table(
    [
        node("idle", offers="cpu=10 memory=10 pods=9"),
        node("busy", offers=f"cpu=10 memory=10 {GPU}=10 pods=9"),
        node("bare", offers="cpu=10 pods=9"),
    ],
    [pod(f"cpu=6 memory=2 {GPU}=4", on="busy", name="there")],
)


@pytest.mark.parametrize(
    ("asks", "resources", "scores"),
    [
        # idle: 0.4 and 0 -> 80 after 100. busy: 1 and 0.2 -> 60 after 80.
        ("cpu=4", "cpu memory", [65, 65, 75]),
        # busy: evened out. idle: 90 against 100.
        ("memory=4", "cpu memory", [65, 85, 75]),
        ("cpu=1 memory=1", "cpu memory", [75, 75, 75]),
        # Over-committed counts as full: 1 and 0.2.
        ("cpu=50", "cpu memory", [50, 65, 75]),
        # One resource is always balanced.
        ("cpu=4", "cpu", [75, 75, 75]),
        # Three: the standard deviation. busy: 0.6 0.6 0.4 -> 90 against 0.6 0.2 0.4 -> 83.
        ("memory=4", f"cpu memory {GPU}", [65, 85, 75]),
        (f"memory=4 {GPU}=2", f"cpu memory {GPU}", [65, 83, 75]),
    ],
)
def test_scores(asks: str, resources: str, scores: list[int]) -> None:
    args = {"resources": [{"name": name} for name in resources.split()]}
    found = Walks(NodeResourcesBalancedAllocation, args).raw(pod(asks), NODES)
    assert found == dict(zip(("idle", "busy", "bare"), scores, strict=True))


def test_two_fractions_are_not_put_through_a_root() -> None:
    """0.1 and 0.8: half their difference truncates to 64, the root of the squares to 65."""
    held = [ResourceUtilization(1, np.array([10]), np.array([0]), n) for n in (1, 8)]
    assert balanced_allocation_score(held, 1).tolist() == [50 + (50 + 64 - 100) // 2]


def test_pods_that_ask_for_nothing_are_skipped() -> None:
    rule = NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs())
    assert rule.pre_score(pod()) == SKIP
    assert rule.pre_score(pod("cpu=0 ephemeral-storage=1Gi")) == SKIP
    assert rule.pre_score(pod("cpu=1m")) == OK
    assert Walks(NodeResourcesBalancedAllocation).raw(pod(), NODES) is None
    # Without PreScore nothing is added either.
    assert rule.score_column(pod(), NODES, NODES.all_rows).tolist() == [0, 0, 0]


def test_pod_level_requests_count() -> None:
    one = pod(containers=[container()], resources={"requests": {"cpu": "4"}})
    found = Walks(NodeResourcesBalancedAllocation).raw(one, NODES)
    assert found == {"idle": 65, "busy": 65, "bare": 75}


def test_resizes_in_progress_count() -> None:
    """What the kubelet reports counts, though pods of one template share their spec."""
    calm = pod("cpu=1")
    status = [{"name": "", "resources": {"requests": {"cpu": "4"}}}]
    resizing = convert({"spec": calm.spec, "status": {"containerStatuses": status}}, Pod)
    rule = NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs())
    assert rule.requests(calm) == {"cpu": 1000}
    assert rule.requests(resizing) == {"cpu": 4000}
    assert rule.requests(calm) == {"cpu": 1000}


Held = tuple[int, int, int]
"""allocatable, taken before, request of one resource."""


def plain_evenness(fractions: Sequence[float]) -> int:
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        mean = sum(fractions) / len(fractions)
        deviation = sqrt(sum((f - mean) * (f - mean) for f in fractions) / len(fractions))
    return int((1 - deviation) * 100)


def plain_improvement(held: Sequence[Held]) -> int:
    """The original's arithmetic for one node."""
    offered = [h for h in held if h[0]]
    after = plain_evenness([min((b + r) / a, 1.0) for a, b, r in offered])
    before = plain_evenness([min(b / a, 1.0) for a, b, _ in offered])
    return 50 + (50 + after - before) // 2


def of(held: Sequence[Held]) -> int:
    stocks = [ResourceUtilization(1, np.array([a]), np.array([b]), r) for a, b, r in held]
    return int(score_resources(stocks, 1, balanced_allocation_score)[0])


sizes = st.integers(0, 20) | st.integers(0, 2**40)
some_held = st.lists(st.tuples(sizes, sizes, sizes), max_size=4)


@given(some_held)
def test_like_the_plain_arithmetic(held: list[Held]) -> None:
    assert of(held) == plain_improvement(held)


def forgets_before(held: Sequence[Held]) -> int:
    """Wrong: older schedulers scored the evenness with the pod alone."""
    return plain_evenness([min((b + r) / a, 1.0) for a, b, r in held if a])


def counts_what_is_not_offered(held: Sequence[Held]) -> int:
    """Wrong: a resource that the node does not offer counts as not used."""
    return plain_improvement([(a or 1, b if a else 0, r if a else 0) for a, b, r in held])


@pytest.mark.parametrize("wrong", [forgets_before, counts_what_is_not_offered])
def test_wrong_arithmetic_is_caught(wrong: Callable[[Sequence[Held]], int]) -> None:
    assert is_found(some_held, lambda held: of(held) != wrong(held))


THREE = {"resources": [{"name": "memory"}, {"name": GPU}, {"name": "ephemeral-storage"}]}


@pytest.mark.parametrize("args", [None, THREE])
@given(case=cases("amounts"))
def test_walks_agree(args: dict[str, Any] | None, case: tuple[Pod, NodeTable]) -> None:
    assert Walks(NodeResourcesBalancedAllocation, args).agree(*case)


class LeavesThePodOut(NodeResourcesBalancedAllocation):
    """Wrong: the column walk scores the nodes as they are."""

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.int64]:
        return np.full_like(super().score_column(pod, nodes, rows), 75)


def test_leaving_the_pod_out_is_caught() -> None:
    assert is_caught(LeavesThePodOut, "amounts")


@pytest.mark.parametrize(
    ("tree", "problems"),
    [
        ({}, []),
        ({"resources": [{"name": "cpu", "weight": 0}, {"name": GPU, "weight": 1}]}, []),
        (
            {"resources": [{"name": "cpu"}, {"name": "cpu", "weight": 2}]},
            [
                "args.resources[1].name: Invalid value: 'cpu' again: expected each resource once",
                "args.resources[1].weight: Invalid value: 2: expected 1",
            ],
        ),
    ],
)
def test_problems(tree: dict[str, Any], problems: list[str]) -> None:
    args = convert(tree, NodeResourcesBalancedAllocationArgs)
    assert list(map(str, args.problems("args"))) == problems
