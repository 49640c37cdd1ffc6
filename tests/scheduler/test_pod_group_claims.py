"""Defects of kube-scheduler with claims that a group shares: as they are with compat, fixed
without."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stowplan.conformance.evaluate import evaluate
from stowplan.scheduler.options import KUBE_SCHEDULER_1_36
from tests.scheduler.test_pod_group_defects import GATES, add, node, pod

CARDS, PORTS = "cards.example.com", "ports.example.com"


def device_class(name: str, driver: str) -> dict[str, Any]:
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    return {"metadata": {"name": name}, "spec": {"selectors": [selector]}}


def devices(on: str, driver: str, *names: str) -> dict[str, Any]:
    pool = {"name": on, "generation": 1, "resourceSliceCount": 1}
    listed = [{"name": name} for name in names]
    spec = {"driver": driver, "nodeName": on, "pool": pool, "devices": listed}
    return {"metadata": {"name": f"{driver}-{on}"}, "spec": spec}


def claim(name: str, of_class: str, **status: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": of_class, "count": 1, "allocationMode": "ExactCount"}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": status}


def member(name: str, *claims: str) -> dict[str, Any]:
    one = pod(name, "1", resourceClaims=[{"name": c, "resourceClaimName": c} for c in claims])
    one["spec"]["containers"][0]["resources"]["claims"] = [{"name": c} for c in claims]
    return one


def answered(compat: str, *pods: dict[str, Any], claims: list[Any], nodes: list[Any]) -> Any:
    """All pods are of a gang that shares the claim `shared`."""
    shared = {"name": "shared", "resourceClaimName": "shared"}
    policy = {"gang": {"minCount": len(pods)}}
    group = {
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": policy, "resourceClaims": [shared]},
    }
    case = {
        "id": "c",
        "featureGates": GATES | {"DRAWorkloadResourceClaims": True},
        "nodes": nodes,
        "podGroups": [group],
        "deviceClasses": [device_class("card", CARDS), device_class("port", PORTS)],
        "resourceClaims": claims,
        "resourceSlices": [devices("n1", CARDS, "card0"), devices("n1", PORTS, "port0", "port1")],
        "steps": [*map(add, pods), {"op": "schedule", "max": 1}],
    }
    (answer,) = evaluate([json.dumps(case)], form="podgroups", compat=compat)
    return answer["result"]


@pytest.mark.parametrize(("compat", "nodes"), [(KUBE_SCHEDULER_1_36, {"n0"}), ("", {"n1"})])
def test_members_go_where_the_devices_are(compat: str, nodes: set[str]) -> None:
    # Once the first is on n1, n0 is the emptier one. Only the first to write is bound there.
    result = answered(
        compat,
        *(member("a", "shared"), member("b", "shared")),
        claims=[claim("shared", "card")],
        nodes=[node("n0", "4"), node("n1", "4")],
    )
    assert set(result["placements"].values()) == nodes
    assert len(result["placements"]) == (1 if compat else 2)
    (device,) = result["steps"][-1]["claims"]["default/shared"]["allocated"]
    assert device == f"r={CARDS}/n1/card0"


@pytest.mark.parametrize(("compat", "driver"), [(KUBE_SCHEDULER_1_36, PORTS), ("", CARDS)])
def test_each_claim_gets_its_own_allocation(compat: str, driver: str) -> None:
    result = answered(
        compat,
        *(member("a", "shared", "own-a"), member("b", "shared", "own-b")),
        claims=[claim("shared", "card"), claim("own-a", "port"), claim("own-b", "port")],
        nodes=[node("n1", "4")],
    )
    (device,) = result["steps"][-1]["claims"]["default/shared"]["allocated"]
    assert device.startswith(f"r={driver}/n1/")


@pytest.mark.parametrize(("compat", "n_times"), [(KUBE_SCHEDULER_1_36, 3), ("", 1)])
def test_a_group_reserves_a_claim_once(compat: str, n_times: int) -> None:
    on_n1 = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    given = {"request": "r", "driver": CARDS, "pool": "n1", "device": "card0"}
    allocation = {
        "devices": {"results": [given]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on_n1]}]},
    }
    result = answered(
        compat,
        *(member(name, "shared") for name in "abc"),
        claims=[claim("shared", "card", allocation=allocation)],
        nodes=[node("n0", "4"), node("n1", "4")],
    )
    reserved = result["steps"][-1]["claims"]["default/shared"]["reservedFor"]
    assert reserved == ["podgroups/g"] * n_times
