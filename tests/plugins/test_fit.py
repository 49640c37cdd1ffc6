"""NodeResourcesFit: what is short and whether evictions could help, and the scores."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from stowplan.columns import NodeTable, Rows
from stowplan.framework import OK, FeatureGates, Handle
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.pod import Pod
from stowplan.plugins.resources.fit import NodeResourcesFit, NodeResourcesFitArgs
from stowplan.plugins.resources.resource_allocation import (
    RowsResourceReader,
    resource_utilizations,
    score_resources,
)
from tests.plugins.clusters import Walks, cases, container, is_caught, node, pod, table

GPU, NIC = "example.com/gpu", "example.com/nic"
FULL = table(
    [node("n", offers=f"cpu=4 memory=8Gi ephemeral-storage=10Gi {GPU}=2 hugepages-2Mi=4Mi pods=2")],
    [pod(f"cpu=3 memory=6Gi ephemeral-storage=9Gi {GPU}=1", on="n", name="there")],
)


@pytest.mark.parametrize(
    ("asks", "refusal"),
    [
        ("", None),
        ("cpu=1 memory=2Gi ephemeral-storage=1Gi example.com/gpu=1 hugepages-2Mi=4Mi", None),
        ("cpu=1001m", "Unschedulable: Insufficient cpu"),
        ("cpu=4", "Unschedulable: Insufficient cpu"),
        # More than the node has at all: no eviction helps.
        ("cpu=4001m", "UnschedulableAndUnresolvable: Insufficient cpu"),
        ("memory=3Gi cpu=2", "Unschedulable: Insufficient cpu, Insufficient memory"),
        ("memory=9Gi cpu=2", "UnschedulableAndUnresolvable: Insufficient cpu, Insufficient memory"),
        ("ephemeral-storage=2Gi", "Unschedulable: Insufficient ephemeral-storage"),
        (f"{GPU}=2", f"Unschedulable: Insufficient {GPU}"),
        (f"{NIC}=1", f"UnschedulableAndUnresolvable: Insufficient {NIC}"),
        (f"{NIC}=0", None),
        ("hugepages-2Mi=6Mi", "UnschedulableAndUnresolvable: Insufficient hugepages-2Mi"),
        # A resource that the scheduler does not count.
        ("storage=1Gi", None),
    ],
)
def test_free_resources(asks: str, refusal: str | None) -> None:
    found = Walks(NodeResourcesFit).refusals(pod(asks), FULL)
    assert found == ({} if refusal is None else {"n": refusal})


def test_pod_slots_come_first() -> None:
    nodes = table(
        [node("n", offers="cpu=1 pods=1"), node("none", offers="cpu=1")],
        [pod("cpu=1", on="n", name="there")],
    )
    walks = Walks(NodeResourcesFit)
    assert walks.refusals(pod(), nodes) == dict.fromkeys(
        ("n", "none"), "Unschedulable: Too many pods"
    )
    assert walks.refusals(pod("cpu=1"), nodes)["n"] == (
        "Unschedulable: Too many pods, Insufficient cpu"
    )


@pytest.mark.parametrize(
    ("args", "short"),
    [
        ({}, f"Insufficient {GPU}, Insufficient {NIC}"),
        ({"ignoredResources": [GPU]}, f"Insufficient {NIC}"),
        ({"ignoredResources": ["cpu", GPU, NIC]}, ""),
        ({"ignoredResourceGroups": ["example.com"]}, ""),
        ({"ignoredResourceGroups": ["example"]}, f"Insufficient {GPU}, Insufficient {NIC}"),
    ],
)
def test_ignored_resources(args: dict[str, Any], short: str) -> None:
    nodes = table([node("n", offers="cpu=1 pods=9")])
    found = Walks(NodeResourcesFit, args).refusals(pod(f"cpu=1 {GPU}=1 {NIC}=1"), nodes)
    assert found == ({"n": f"UnschedulableAndUnresolvable: {short}"} if short else {})


def test_native_resources_cannot_be_ignored() -> None:
    args = {"ignoredResources": ["cpu", "hugepages-2Mi"]}
    found = Walks(NodeResourcesFit, args).refusals(pod("cpu=5 hugepages-2Mi=8Mi"), FULL)
    assert found == {
        "n": "UnschedulableAndUnresolvable: Insufficient cpu, Insufficient hugepages-2Mi"
    }


def test_many_resources() -> None:
    """More resources than there are bits: the late ones are refused and named all the same."""
    names = [f"example.com/r{i:02}" for i in range(70)]
    has = " ".join(f"{name}=1" for name in names[:-1])
    nodes = table([node("n", offers=f"pods=9 {has}"), node("bare", offers="pods=9")])
    found = Walks(NodeResourcesFit).refusals(pod(f"{has} {names[-1]}=1"), nodes)
    assert f"Insufficient {names[-1]}" in found["n"].split(": ")[1].split(", ")
    assert "Insufficient example.com/r00" not in found["n"]
    assert found["bare"].count("Insufficient") == 70


def test_sidecars_need_their_gate() -> None:
    sidecar = {**container("cpu=1"), "restartPolicy": "Always"}
    off = NodeResourcesFit(NodeResourcesFitArgs(), Handle(FeatureGates(sidecar_containers=False)))
    on = NodeResourcesFit(NodeResourcesFitArgs(), Handle(FeatureGates()))
    assert off.pre_filter(pod(initContainers=[sidecar])) == off.SIDECARS_DISABLED
    assert off.pre_filter(pod(initContainers=[container("cpu=1")])) == OK
    assert on.pre_filter(pod(initContainers=[sidecar])) == OK


NODES = table(
    [
        node("idle", offers="cpu=4 memory=8Gi pods=9"),
        node("busy", offers=f"cpu=4 memory=8Gi {GPU}=4 pods=9"),
        node("bare", offers="pods=9"),
    ],
    [pod(f"cpu=2 memory=2Gi {GPU}=1", on="busy", name="there")],
)


@pytest.mark.parametrize(
    ("strategy", "asks", "scores"),
    [
        ({"type": "LeastAllocated"}, "cpu=1 memory=2Gi", [75, 37, 0]),
        ({"type": "MostAllocated"}, "cpu=1 memory=2Gi", [25, 62, 0]),
        # Without requests, 100m and 200Mi are counted: 97 and 97; 47 and 72.
        ({"type": "LeastAllocated"}, "", [97, 59, 0]),
        (
            {"type": "LeastAllocated", "resources": [{"name": GPU, "weight": 3}, {"name": "cpu"}]},
            f"cpu=1 {GPU}=1",
            [75, 43, 0],
        ),
        ({"type": "LeastAllocated", "resources": [{"name": GPU}]}, "cpu=1", [0, 0, 0]),
        (
            {
                "type": "RequestedToCapacityRatio",
                "requestedToCapacityRatio": {
                    "shape": [{"utilization": 0, "score": 10}, {"utilization": 50, "score": 0}]
                },
            },
            "cpu=1 memory=2Gi",
            [50, 0, 0],
        ),
    ],
)
def test_scores(strategy: dict[str, Any], asks: str, scores: list[int]) -> None:
    found = Walks(NodeResourcesFit, {"scoringStrategy": strategy}).raw(pod(asks), NODES)
    assert found == dict(zip(("idle", "busy", "bare"), scores, strict=True))


def test_pod_level_requests_do_not_reach_the_score() -> None:
    """An oversight of the original: its scorer counts the containers alone."""
    one = pod(containers=[container("cpu=1 memory=2Gi")], resources={"requests": {"cpu": "3"}})
    assert Walks(NodeResourcesFit).raw(one, NODES) == {"idle": 75, "busy": 37, "bare": 0}
    assert Walks(NodeResourcesFit).refusals(one, NODES).keys() == {"busy", "bare"}


RATIO = {
    "type": "RequestedToCapacityRatio",
    "resources": [{"name": GPU, "weight": 5}, {"name": "memory"}, {"name": "ephemeral-storage"}],
    "requestedToCapacityRatio": {
        "shape": [{"utilization": 0, "score": 0}, {"utilization": 70, "score": 10}]
    },
}


@pytest.mark.parametrize("args", [None, {"scoringStrategy": RATIO, "ignoredResources": [GPU]}])
@given(case=cases("amounts"))
def test_walks_agree(args: dict[str, Any] | None, case: tuple[Pod, NodeTable]) -> None:
    assert Walks(NodeResourcesFit, args).agree(*case)


class AdmitsOneTooMany(NodeResourcesFit):
    """Wrong: the column walk forgets to count the pod itself."""

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.int64]:
        codes = super().filter_column(pod, nodes, rows)
        return codes & ~(nodes.pod_count[rows] == nodes.pod_limit[rows]).astype(np.int64)


class NeverHopeless(NodeResourcesFit):
    """Wrong: the column walk thinks that evictions always help."""

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.int64]:
        return super().filter_column(pod, nodes, rows) & ~2


class ScoresRealRequests(NodeResourcesFit):
    """Wrong: the column walk counts no defaults for pods that are there."""

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.int64]:
        source, resources = RowsResourceReader(nodes, rows), self.args.scoring_strategy.resources
        requests = dict(self.signature(pod)[1])  # type: ignore[index]
        held = resource_utilizations(source, resources, requests, fill_in=False)
        return score_resources(held, source.n_rows, self.args.scoring_strategy.rule())


@pytest.mark.parametrize("wrong", [AdmitsOneTooMany, NeverHopeless, ScoresRealRequests])
def test_wrong_columns_are_caught(wrong: type[NodeResourcesFit]) -> None:
    assert is_caught(wrong, "amounts")


@pytest.mark.parametrize(
    ("tree", "problems"),
    [
        ({}, []),
        ({"ignoredResources": [GPU], "ignoredResourceGroups": ["example.com"]}, []),
        (
            {"ignoredResourceGroups": [GPU]},
            [
                f"args.ignoredResourceGroups[0]: Invalid value: '{GPU}': "
                f"expected the part before the slash only"
            ],
        ),
        (
            {"scoringStrategy": {"type": "MostAllocated", "resources": [{"weight": -1}]}},
            ["args.scoringStrategy.resources[0].weight: Invalid value: -1: expected 1 to 100"],
        ),
    ],
)
def test_problems(tree: dict[str, Any], problems: list[str]) -> None:
    args = convert(tree, NodeResourcesFitArgs)
    assert list(map(str, args.problems("args"))) == problems


def test_names_that_are_no_names() -> None:
    args = convert({"ignoredResources": ["a b"]}, NodeResourcesFitArgs)
    (problem,) = args.problems("args")
    assert str(problem).startswith("args.ignoredResources[0]: Invalid value: 'a b': expected ")


def test_signature_is_what_is_asked_for() -> None:
    rule = NodeResourcesFit(NodeResourcesFitArgs(), Handle(FeatureGates()))
    assert rule.signature(pod("cpu=1 memory=1Gi")) == rule.signature(pod("memory=1024Mi cpu=1000m"))
    assert rule.signature(pod("cpu=1")) != rule.signature(pod("cpu=2"))
    # The score sees that one of them names no memory.
    assert rule.signature(pod("cpu=1")) != rule.signature(pod("cpu=1 memory=0"))


def test_pods_that_share_a_signature_share_their_codes() -> None:
    """Kept columns are read with another pod's request, so its order must be the same."""
    rule = NodeResourcesFit(NodeResourcesFitArgs(), Handle(FeatureGates()))
    first = pod("example.com/a=1 example.com/b=1")
    other = pod("example.com/b=1 example.com/a=1")
    assert rule.wanted(first) != rule.wanted(other)
    assert rule.signature(first) != rule.signature(other)
