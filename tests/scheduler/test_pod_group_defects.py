"""Defects of kube-scheduler's pod groups: as they are with compat, fixed without."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.assembly.deciders import deciders_of
from stowplan.conformance.evaluate import evaluate
from stowplan.framework.feature_gates import FeatureGates
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.pod import PodSchedulingGroup
from stowplan.scheduler.options import KUBE_SCHEDULER_1_36
from stowplan.testing import builders

GATES = {"GenericWorkload": True, "GangScheduling": True}


def node(name: str, cpu: str) -> dict[str, Any]:
    allocatable = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}


def pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    group = {"podGroupName": "g"}
    meta = {"name": name, "labels": {"app": name}}
    return {
        "metadata": meta,
        "spec": {"containers": [container], "schedulingGroup": group, **spec},
    }


def answered(
    steps: list[dict[str, Any]],
    nodes: list[Any],
    compat: str,
    n_min: int = 2,
    *,
    gates: tuple[str, ...] = (),
    **rest: Any,
) -> Any:
    """gates: further ones that are on. rest: fields of the group."""
    spec = {"schedulingPolicy": {"gang": {"minCount": n_min}}, **rest}
    group = {"metadata": {"name": "g"}, "spec": spec}
    on = GATES | dict.fromkeys(gates, True)
    case = {"id": "c", "featureGates": on, "nodes": nodes, "podGroups": [group], "steps": steps}
    (answer,) = evaluate([json.dumps(case)], form="podgroups", compat=compat)
    return answer["result"]


def add(one: dict[str, Any]) -> dict[str, Any]:
    return {"op": "addPod", "object": one}


@pytest.mark.parametrize(("compat", "n_attempts"), [(KUBE_SCHEDULER_1_36, 5), ("", 1)])
def test_a_group_that_does_not_fit_is_tried_again(compat: str, n_attempts: int) -> None:
    steps = [add(pod("a", "2")), add(pod("b", "2")), {"op": "schedule", "max": 5}]
    result = answered(steps, [node("n", "3")], compat)
    assert len(result["steps"][-1]["attempts"]) == n_attempts


def test_a_refused_group_is_tried_again_when_a_node_comes() -> None:
    steps = [
        add(pod("a", "2")),
        add(pod("b", "2")),
        {"op": "schedule", "max": 5},
        {"op": "addNode", "object": node("m", "3")},
        {"op": "advance", "ms": 20000},
        {"op": "schedule", "max": 5},
    ]
    result = answered(steps, [node("n", "3")], "")
    assert sorted(result["placements"].values()) == ["m", "n"]


@pytest.mark.parametrize(("compat", "n_unscheduled"), [(KUBE_SCHEDULER_1_36, 2), ("", 1)])
def test_a_member_bound_by_others_has_a_node(compat: str, n_unscheduled: int) -> None:
    steps = [
        add(pod("a", "1")),
        add(pod("b", "1")),
        {"op": "bindPod", "key": "default/a", "node": "n"},
    ]
    result = answered(steps, [node("n", "3")], compat)
    assert result["steps"][-1]["groups"]["default/g"]["unscheduled"] == n_unscheduled


@pytest.mark.parametrize(("compat", "n_nodes"), [(KUBE_SCHEDULER_1_36, 1), ("", 2)])
def test_anti_affinity_of_a_member_keeps_others_away(compat: str, n_nodes: int) -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "b"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    near = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    preferred = [{"weight": 100, "preference": near}]
    to_n = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    first = pod("a", "1", priority=1, affinity={**anti, **to_n})
    steps = [add(first), add(pod("b", "1", affinity=to_n)), {"op": "schedule", "max": 1}]
    result = answered(steps, [node("n", "8"), node("m", "8")], compat)
    assert len(set(result["placements"].values())) == n_nodes


def test_a_group_without_a_name() -> None:
    nameless = pod("a", "1")
    nameless["spec"]["schedulingGroup"] = {}
    exact = answered([add(nameless)], [node("n", "8")], KUBE_SCHEDULER_1_36)
    fixed = answered([add(nameless)], [node("n", "8")], "")
    assert "panic" in exact["steps"][0]
    assert fixed["steps"][0]["queue"]["default/a"]["in"] == "gated"


@pytest.mark.parametrize("compat", [KUBE_SCHEDULER_1_36, ""])
def test_a_running_scheduler_refuses_a_pod_whose_group_has_no_name(compat: str) -> None:
    gates = FeatureGates(generic_workload=True, gang_scheduling=True)
    scheduler = deciders_of((), compat=(compat,) if compat else (), gates=gates).scheduler()
    plain = builders.pod("a", cpu="1")
    nameless = replace(plain, spec=replace(plain.spec, scheduling_group=PodSchedulingGroup()))
    events: list[Event] = [happened.NodeAdded(builders.node("n", cpu="4"))]
    events += [happened.PodAdded(nameless), happened.PodAdded(builders.pod("b", cpu="1"))]
    effects = scheduler.handle(events, 0)
    (report,) = (one for one in effects if isinstance(one, to_do.Report))
    assert (report.subject, report.is_fault) == ("pod", False)
    assert report.text.startswith("default/a stays out of the queue: ")
    # Others are decided, and the same pod is reported once.
    assert [one.name for one in effects if isinstance(one, to_do.Bind)] == ["b"]
    labelled = replace(nameless, metadata=replace(nameless.metadata, labels={"a": "b"}))
    again = scheduler.handle([happened.PodUpdated(labelled)], 0)
    assert not any(isinstance(one, to_do.Report) for one in again)


BOTH = [KUBE_SCHEDULER_1_36, ""]


def running(name: str, cpu: str, on: str = "n", **spec: Any) -> dict[str, Any]:
    plain = pod(name, cpu, nodeName=on, **spec)
    del plain["spec"]["schedulingGroup"]
    return plain


def group(n_min: int | None) -> dict[str, Any]:
    policy = {"basic": {}} if n_min is None else {"gang": {"minCount": n_min}}
    return {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": policy}}


def evicted(result: Any) -> list[str]:
    attempts = [one for step in result["steps"] for one in step.get("attempts", ())]
    return [key for one in attempts for key in one.get("evicted", ())]


@pytest.mark.parametrize(("compat", "n_claims"), [(KUBE_SCHEDULER_1_36, 2), ("", 1)])
def test_a_victim_is_claimed_once(compat: str, n_claims: int) -> None:
    # Each member fits in the place of any victim; two of them need both.
    steps = [
        add(running("v", "4")),
        add(pod("a", "2", priority=5)),
        add(pod("b", "2", priority=5)),
        {"op": "schedule", "max": 1},
    ]
    result = answered(steps, [node("n", "4")], compat)
    attempt = result["steps"][-1]["attempts"][0]
    assert attempt["result"] == "waiting_on_preemption"
    assert evicted(result) == ["default/v"]
    # A member that comes after the first one finds the room: it needs no preemption of its own.
    own = [one for one in attempt["failed"].values() if "Insufficient" in one["message"]]
    assert len(own) == n_claims


@pytest.mark.parametrize(("compat", "victims"), [(KUBE_SCHEDULER_1_36, ["default/a"]), ("", [])])
def test_a_group_does_not_evict_its_own_pods(compat: str, victims: list[str]) -> None:
    steps = [
        add(pod("a", "4", nodeName="n")),
        add(pod("b", "4")),
        {"op": "schedule", "max": 1},
    ]
    result = answered(
        steps, [node("n", "4")], compat, 1, gates=("WorkloadAwarePreemption",), priority=10
    )
    assert evicted(result) == victims


@pytest.mark.parametrize(("compat", "victims"), [(KUBE_SCHEDULER_1_36, []), ("", ["default/v"])])
def test_members_preempt_beside_empty_constraints(compat: str, victims: list[str]) -> None:
    steps = [
        add(running("v", "4")),
        add(pod("a", "4", priority=5)),
        {"op": "schedule", "max": 1},
    ]
    gates = ("TopologyAwareWorkloadScheduling",)
    result = answered(steps, [node("n", "4")], compat, 1, gates=gates, schedulingConstraints={})
    assert evicted(result) == victims


@pytest.mark.parametrize(("compat", "victims"), [(KUBE_SCHEDULER_1_36, ["default/v"]), ("", [])])
def test_no_evictions_for_a_group_that_is_not_scheduled(compat: str, victims: list[str]) -> None:
    steps = [
        add(running("v", "4")),
        add(pod("a", "4", priority=5)),
        add(pod("b", "9", priority=5)),
        {"op": "schedule", "max": 1},
    ]
    assert evicted(answered(steps, [node("n", "4")], compat)) == victims


@pytest.mark.parametrize(("compat", "place"), [(KUBE_SCHEDULER_1_36, "errorBackoff"), ("", "")])
def test_a_placed_member_of_a_failed_group_waits_for_events(compat: str, place: str) -> None:
    steps = [
        add(pod("a", "2")),
        add(pod("b", "2")),
        {"op": "schedule", "max": 1},
        {"op": "addNode", "object": node("m", "3")},
        {"op": "advance", "ms": 20000},
        {"op": "schedule", "max": 5},
    ]
    result = answered(steps, [node("n", "3")], compat)
    # The pod that completes the group comes first.
    assert result["steps"][2]["queue"]["default/b"]["in"] == (place or "unschedulable")
    # It comes along with the member that is woken by the node.
    assert sorted(result["placements"].values()) == ["m", "n"]


@pytest.mark.parametrize(("compat", "status"), [(KUBE_SCHEDULER_1_36, "True"), ("", "False")])
def test_a_group_whose_pods_are_gone_is_not_scheduled_any_more(compat: str, status: str) -> None:
    steps = [
        add(pod("a", "1")),
        add(pod("b", "1")),
        {"op": "schedule", "max": 5},
        {"op": "deletePod", "key": "default/a"},
        {"op": "deletePod", "key": "default/b"},
        add(pod("c", "9")),
        add(pod("d", "9")),
        {"op": "schedule", "max": 1},
    ]
    result = answered(steps, [node("n", "3")], compat)
    assert result["podGroupConditions"]["default/g"][1] == status


@pytest.mark.parametrize("compat", BOTH)
def test_a_group_with_enough_running_pods_stays_scheduled(compat: str) -> None:
    steps = [
        add(pod("a", "1")),
        add(pod("b", "1")),
        {"op": "schedule", "max": 5},
        add(pod("c", "9")),
        {"op": "schedule", "max": 1},
    ]
    result = answered(steps, [node("n", "3")], compat)
    assert result["podGroupConditions"]["default/g"][1] == "True"


@pytest.mark.parametrize(("compat", "n_bound"), [(KUBE_SCHEDULER_1_36, 0), ("", 2)])
@pytest.mark.parametrize("n_min", [2, None])
def test_a_lower_min_count_wakes_gated_members(
    compat: str, n_bound: int, n_min: int | None
) -> None:
    steps = [
        add(pod("a", "1")),
        add(pod("b", "1")),
        {"op": "updatePodGroup", "object": group(n_min)},
        {"op": "schedule", "max": 5},
    ]
    result = answered(steps, [node("n", "3")], compat, n_min=3)
    assert len(result["placements"]) == n_bound


@pytest.mark.parametrize(("compat", "n_bound"), [(KUBE_SCHEDULER_1_36, 0), ("", 2)])
def test_a_lower_min_count_lets_members_go_on_that_wait_at_permit(
    compat: str, n_bound: int
) -> None:
    steps = [
        add(pod("a", "1")),
        add(pod("b", "1")),
        add(pod("c", "1")),
        {"op": "failReserve", "key": "default/c"},
        {"op": "schedule", "max": 1},
        {"op": "updatePodGroup", "object": group(2)},
        {"op": "schedule", "max": 0},
    ]
    result = answered(steps, [node("n", "3")], compat, n_min=3)
    assert len(result["placements"]) == n_bound


@pytest.mark.parametrize(("compat", "n_waiting"), [(KUBE_SCHEDULER_1_36, 2), ("", 0)])
def test_members_of_a_deleted_group_release_their_room(compat: str, n_waiting: int) -> None:
    steps = [
        add(pod("a", "1")),
        add(pod("b", "1")),
        add(pod("c", "1")),
        {"op": "failReserve", "key": "default/c"},
        {"op": "schedule", "max": 1},
        {"op": "deletePodGroup", "key": "default/g"},
    ]
    result = answered(steps, [node("n", "3")], compat, n_min=3)
    assert len(result["steps"][-2]["waiting"]) == 2
    assert len(result["steps"][-1].get("waiting", ())) == n_waiting


@pytest.mark.parametrize(("compat", "n_bound"), [("", 2)])
def test_a_deleted_member_makes_room_for_others(compat: str, n_bound: int) -> None:
    steps = [
        add(pod("a", "3", priority=1)),
        add(pod("b", "2")),
        add(pod("c", "2")),
        {"op": "schedule", "max": 5},
        {"op": "deletePod", "key": "default/a"},
        {"op": "schedule", "max": 5},
    ]
    result = answered(steps, [node("n", "4")], compat)
    assert len(result["placements"]) == n_bound


def test_a_member_bound_by_others_makes_room_for_others() -> None:
    """The one that is bound had the only node in the latest attempt, which the others were
    refused: none of them waits for its gang."""
    steps = [
        add(pod("a", "2", priority=1)),
        add(pod("b", "2")),
        add(pod("c", "2")),
        {"op": "schedule", "max": 5},
        {"op": "bindPod", "key": "default/a", "node": "m"},
        {"op": "schedule", "max": 5},
    ]
    result = answered(steps, [node("n", "3"), node("m", "1")], "")
    assert sorted(result["placements"].items()) == [("default/a", "m"), ("default/b", "n")]
