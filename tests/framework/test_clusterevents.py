"""Cluster events: which registration hears of what, and what an update of an object amounts to."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stowplan.framework.clusterevents import (
    ACTION_OF_TITLE,
    ANYTHING,
    ASSIGNED_POD,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_OF_KIND,
    UNSCHEDULABLE_POD,
    UNSCHEDULABLE_TIMEOUT,
    WILDCARD,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    event_labels,
    event_matches,
    node_update_events,
    on,
    pod_update_events,
    with_node_taint_events,
)
from stowplan.objects.node import Node, NodeCondition
from stowplan.objects.pod import Pod, PodResourceClaimStatus
from stowplan.testing.builders import node, pod

LABEL, TAINT = Action.UPDATE_NODE_LABEL, Action.UPDATE_NODE_TAINT


@pytest.mark.parametrize(
    ("registered", "incoming", "heard"),
    [
        ((NODE, Action.ADD), (NODE, Action.ADD), True),
        ((NODE, Action.ADD), (POD, Action.ADD), False),
        ((NODE, Action.ADD | LABEL), (NODE, LABEL), True),
        ((NODE, Action.ADD | LABEL), (NODE, TAINT), False),
        # A special update is heard by who asked for all of them, but not the other way round.
        ((NODE, Action.UPDATE), (NODE, LABEL), True),
        ((NODE, LABEL), (NODE, Action.UPDATE), False),
        ((NODE, Action.ADD | Action.UPDATE), (NODE, Action.UPDATE), True),
        ((POD, Action.DELETE), (ASSIGNED_POD, Action.DELETE), True),
        ((POD, Action.DELETE), (UNSCHEDULABLE_POD, Action.DELETE), True),
        ((ASSIGNED_POD, Action.DELETE), (POD, Action.DELETE), False),
        ((WILDCARD, Action.ADD), (NODE, Action.ADD), True),
        ((WILDCARD, Action.ADD), (NODE, Action.DELETE), False),
        ((WILDCARD, Action.ALL), (NODE, Action.DELETE), True),
        ((NODE, Action.ALL), (WILDCARD, Action.ALL), False),
    ],
)
def test_matching(
    registered: tuple[str, Action], incoming: tuple[str, Action], heard: bool
) -> None:
    assert event_matches(ClusterEvent(*registered), ClusterEvent(*incoming)) is heard


def test_labels() -> None:
    assert ClusterEvent(NODE, Action.ADD).label == "NodeAdd"
    assert ClusterEvent(ASSIGNED_POD, Action.UPDATE_POD_LABEL).label == "AssignedPodUpdatePodLabel"
    assert (
        ClusterEvent(RESOURCE_CLAIM, Action.UPDATE).label == "resource.k8s.io/ResourceClaimUpdate"
    )
    assert ANYTHING.label == "*All"
    assert UNSCHEDULABLE_TIMEOUT.label == "UnschedulableTimeout"
    assert UNSCHEDULABLE_TIMEOUT.is_wildcard
    assert RESOURCE_OF_KIND["ResourceClaim"] == RESOURCE_CLAIM
    assert {ACTION_OF_TITLE[action.title] for action in Action} == set(Action)


def actions(registered: tuple[ClusterEventWithHint, ...]) -> list[tuple[str, Action]]:
    return [(one.event.resource, one.event.action) for one in registered]


def test_who_asks_for_new_nodes_hears_of_taints_too() -> None:
    asked = (on(POD, Action.DELETE), on(NODE, Action.ADD | LABEL))
    assert actions(with_node_taint_events(asked)) == [*actions(asked), (NODE, TAINT)]
    for enough in ((on(NODE, Action.ADD), on(NODE, TAINT)), (on(NODE, LABEL),), ()):
        assert with_node_taint_events(enough) == enough


def changed(before: Pod, after: Pod) -> list[str]:
    return [
        label.removeprefix("UnschedulablePod")
        for label in event_labels(pod_update_events(before, after))
    ]


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (pod("a"), pod("a"), ["Update"]),
        (pod("a"), pod("a", nominated="n1"), ["Update"]),
        (pod("a"), pod("a", labels={"x": "y"}), ["UpdatePodLabel"]),
        (pod("a", cpu="2"), pod("a", cpu="1"), ["UpdatePodScaleDown"]),
        (pod("a", cpu="1"), pod("a", cpu="2"), ["Update"]),
        (pod("a", cpu="1", memory="1Gi"), pod("a", memory="2Gi"), ["UpdatePodScaleDown"]),
        (pod("a", cpu="1"), pod("a", cpu="1000m"), ["Update"]),
        (pod("a", gates=["g", "h"]), pod("a", gates=["g"]), ["Update"]),
        (pod("a", gates=["g"]), pod("a"), ["UpdatePodSchedulingGatesEliminated"]),
        (pod("a"), pod("a", tolerations=["x"]), ["UpdatePodToleration"]),
        (pod("a", tolerations=["x"]), pod("a", tolerations=["y"]), ["Update"]),
        (
            pod("a", gates=["g"], cpu="2"),
            pod("a", labels={"x": "y"}, tolerations=["x"]),
            [
                "UpdatePodLabel",
                "UpdatePodScaleDown",
                "UpdatePodSchedulingGatesEliminated",
                "UpdatePodToleration",
            ],
        ),
    ],
)
def test_changes_of_a_pod(before: Pod, after: Pod, wanted: list[str]) -> None:
    assert changed(before, after) == wanted


def test_generated_claims_are_a_change_of_a_pod() -> None:
    made = (PodResourceClaimStatus(name="gpu", resource_claim_name="a-gpu"),)
    before = pod("a")
    after = replace(before, status=replace(before.status, resource_claim_statuses=made))
    assert changed(before, after) == ["UpdatePodGeneratedResourceClaim"]


def test_a_bound_pod_is_another_resource() -> None:
    assert event_labels(pod_update_events(pod("a"), pod("a", on="n1"))) == ["AssignedPodUpdate"]


def with_condition(made: Node, status: str) -> Node:
    condition = NodeCondition(type="Ready", status=status)
    return replace(made, status=replace(made.status, conditions=(condition,)))


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (node("n"), node("n"), []),
        (node("n", cpu="4"), node("n", cpu="4000m"), []),
        (node("n", cpu="4"), node("n", cpu="3"), ["UpdateNodeAllocatable"]),
        (node("n", cpu="4"), node("n", cpu=None), ["UpdateNodeAllocatable"]),
        (node("n"), node("n", labels={"x": "y"}), ["UpdateNodeLabel"]),
        (node("n"), node("n", taints=["x:NoSchedule"]), ["UpdateNodeTaint"]),
        (node("n", cordoned=True), node("n"), ["UpdateNodeTaint"]),
        (node("n"), node("n", cordoned=True), []),
        (
            node("n", cordoned=True),
            node("n", taints=["x:NoSchedule"], zone="z", cpu="1"),
            ["UpdateNodeTaint", "UpdateNodeAllocatable", "UpdateNodeLabel", "UpdateNodeTaint"],
        ),
        (node("n"), node("n", features=["X"]), ["UpdateNodeDeclaredFeature"]),
        (
            with_condition(node("n"), "True"),
            with_condition(node("n"), "False"),
            ["UpdateNodeCondition"],
        ),
    ],
)
def test_changes_of_a_node(before: Node, after: Node, wanted: list[str]) -> None:
    labels = [
        label.removeprefix("Node") for label in event_labels(node_update_events(before, after))
    ]
    assert labels == wanted


def test_annotations_are_a_change_of_a_node() -> None:
    before = node("n")
    after = replace(before, metadata=replace(before.metadata, annotations={"x": "y"}))
    assert event_labels(node_update_events(before, after)) == ["NodeUpdateNodeAnnotation"]
