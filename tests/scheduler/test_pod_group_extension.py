"""What the profile `stowplan` does for pod groups beyond kube-scheduler."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stowplan.conformance.evaluate import evaluate
from stowplan.scheduler.options import KUBE_SCHEDULER_1_36
from tests.scheduler.test_pod_group_defects import GATES, add, node, pod


def member(name: str, cpu: str, profile: str, **spec: Any) -> dict[str, Any]:
    return pod(name, cpu, schedulerName=profile, **spec)


def answered(
    pods: list[dict[str, Any]],
    nodes: list[Any],
    profile: str,
    *,
    compat: str = "",
    gates: dict[str, bool] = GATES,
    **spec: Any,
) -> Any:
    policy = {"gang": {"minCount": len(pods)}}
    group = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": policy, **spec}}
    case = {
        "id": "c",
        "featureGates": gates,
        "profile": {"profiles": [{"schedulerName": profile}]},
        "nodes": nodes,
        "podGroups": [group],
        "steps": [*map(add, pods), {"op": "schedule", "max": 1}],
    }
    (answer,) = evaluate([json.dumps(case)], form="podgroups", compat=compat)
    return answer["result"]


def three(profile: str) -> list[dict[str, Any]]:
    """In this order the first two spread over both nodes, and the large one finds no room."""
    return [
        member("a", "2", profile, priority=1),
        member("b", "2", profile, priority=1),
        member("large", "4", profile),
    ]


@pytest.mark.parametrize(("profile", "n_placed"), [("default-scheduler", 0), ("stowplan", 3)])
def test_members_are_tried_in_another_order(profile: str, n_placed: int) -> None:
    result = answered(three(profile), [node("n", "4"), node("m", "4")], profile)
    assert len(result["placements"]) == n_placed
    assert not n_placed or result["placements"]["default/a"] == result["placements"]["default/b"]


def test_with_compat_there_is_one_order() -> None:
    nodes = [node("n", "4"), node("m", "4")]
    result = answered(three("stowplan"), nodes, "stowplan", compat=KUBE_SCHEDULER_1_36)
    assert result["placements"] == {}


def test_every_domain_is_tried_so() -> None:
    def in_zone(name: str, zone: str) -> dict[str, Any]:
        one = node(name, "4")
        one["metadata"]["labels"]["zone"] = zone
        return one

    gates = {**GATES, "TopologyAwareWorkloadScheduling": True}
    nodes = [in_zone("a1", "a"), in_zone("b1", "b"), in_zone("b2", "b")]
    constraint = {"topology": [{"key": "zone"}]}
    pods = three("stowplan")
    result = answered(pods, nodes, "stowplan", gates=gates, schedulingConstraints=constraint)
    assert set(result["placements"].values()) == {"b1", "b2"}
    assert len(result["placements"]) == 3


def test_the_text_of_a_member_with_a_place_counts_those_that_have_one() -> None:
    pods = [member("a", "2", "stowplan"), member("b", "8", "stowplan")]
    result = answered(pods, [node("n", "4")], "stowplan")
    assert (
        "1 of 2 pods have a node at once (n for this one)"
        in (result["pending"]["default/a"]["message"])
    )
    assert "Insufficient cpu" in result["pending"]["default/b"]["message"]


def test_members_that_are_alike_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from stowplan.scheduler.pod_groups.group_algorithm import GroupAlgorithm

    n_runs = 0
    right = GroupAlgorithm._run_in_order

    def counted(*given: Any, **rest: Any) -> Any:
        nonlocal n_runs
        n_runs += 1
        return right(*given, **rest)

    monkeypatch.setattr(GroupAlgorithm, "_run_in_order", counted)
    pods = [member(name, "3", "stowplan") for name in "abc"]
    answered(pods, [node("n", "4"), node("m", "4")], "stowplan")
    assert n_runs == 1
