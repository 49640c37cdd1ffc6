"""Defects of kube-scheduler's pod groups: as they are with compat, fixed without."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stowplan.conformance.evaluate import evaluate
from stowplan.scheduler.options import KUBE_SCHEDULER_1_36

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


def answered(steps: list[dict[str, Any]], nodes: list[Any], compat: str, n_min: int = 2) -> Any:
    group = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": n_min}}}}
    case = {"id": "c", "featureGates": GATES, "nodes": nodes, "podGroups": [group], "steps": steps}
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
