"""Pods are evicted from devices with NoExecute taints, of slices and of DeviceTaintRules."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.apis.machinery.timestamps import format_time
from tests.apiserver.small_cluster import SmallCluster, Tree, pod

CLAIMS = "resource.k8s.io/resourceclaims"
SLICES = "resource.k8s.io/resourceslices"
RULES = "resource.k8s.io/devicetaintrules"
DRIVER = "gpu.example.com"
RESULT: Tree = {"request": "r", "driver": DRIVER, "pool": "node-1", "device": "gpu-0"}
TAINT = {"key": "broken", "effect": "NoExecute"}


def slice_of(*taints: Tree, generation: int = 1, name: str = "node-1-gpus") -> Tree:
    device = {"name": "gpu-0", "taints": list(taints)} if taints else {"name": "gpu-0"}
    pool = {"name": "node-1", "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "node-1", "pool": pool, "devices": [device]}
    return {"metadata": {"name": name}, "spec": spec}


def rule_of(effect: str = "NoExecute", **selector: str) -> Tree:
    spec = {"deviceSelector": selector, "taint": {**TAINT, "effect": effect}}
    return {"metadata": {"name": "maintenance"}, "spec": spec}


def cluster(*tolerations: Tree, **metadata: Any) -> SmallCluster:
    """A node with a card, and pod p, which has it by claim c. tolerations: of the claim.
    metadata: of the pod."""
    here = SmallCluster(1, schedules=False, device_taint_rules=True)
    here.create(SLICES, slice_of())
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    claim = here.create(
        CLAIMS,
        {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}},
    )
    user = pod("p")
    user["metadata"] |= metadata
    user["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    made = here.create("pods", user)
    result = {**RESULT, "tolerations": list(tolerations)} if tolerations else RESULT
    reserved = {"resource": "pods", "name": "p", "uid": made["metadata"]["uid"]}
    claim["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [reserved],
    }
    here.api.update_status(CLAIMS, claim)
    here.server.bind(here.the("pods", "p"), "node-1", here.now)
    here.settle()
    return here


def taint_slice(here: SmallCluster, *taints: Tree, generation: int = 1) -> None:
    held = here.the(SLICES, "node-1-gpus", "")
    held["spec"] = slice_of(*taints, generation=generation)["spec"]
    here.api.update(SLICES, held)
    here.settle()


def is_gone(here: SmallCluster) -> bool:
    held = [one for one in here.list("pods") if one["metadata"]["name"] == "p"]
    return not held or "deletionTimestamp" in held[0]["metadata"]


def events(here: SmallCluster) -> list[str]:
    reason = "DeviceTaintManagerEviction"
    return [one["message"] for one in here.list("events", "default") if one["reason"] == reason]


def condition(here: SmallCluster) -> tuple[str, str, str]:
    (found,) = here.the(RULES, "maintenance", "")["status"]["conditions"]
    return found["status"], found["reason"], found["message"]


def test_a_taint_of_the_driver_evicts_the_pod() -> None:
    here = cluster(finalizers=["example.com/keep"])
    assert not is_gone(here)
    taint_slice(here, TAINT)
    assert is_gone(here)
    assert events(here) == ["Marking for deletion"]
    held = {one["type"]: one for one in here.the("pods", "p")["status"]["conditions"]}
    target = held["DisruptionTarget"]
    assert (target["status"], target["reason"]) == ("True", "DeletionByDeviceTaintManager")


@pytest.mark.parametrize(
    ("toleration", "gone_after_s"),
    [
        ({"operator": "Exists", "effect": "NoExecute"}, None),
        ({"operator": "Exists", "effect": "NoSchedule"}, 0),
        # As in the original: only a toleration that names the effect counts.
        ({"operator": "Exists"}, 0),
        ({"key": "other", "operator": "Exists", "effect": "NoExecute"}, 0),
        ({"key": "broken", "operator": "Equal", "value": "", "effect": "NoExecute"}, None),
        ({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}, 30),
        ({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -5}, 0),
    ],
)
def test_tolerations_of_the_claim(toleration: Tree, gone_after_s: int | None) -> None:
    here = cluster(toleration)
    taint_slice(here, {**TAINT, "timeAdded": format_time(here.now)})
    if gone_after_s:
        here.run(gone_after_s - 1)
        assert not is_gone(here)
        here.run(2)
    else:
        here.run(1)
    assert is_gone(here) == (gone_after_s is not None)


def test_an_eviction_that_waits_is_cancelled_when_the_taint_goes() -> None:
    here = cluster({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30})
    taint_slice(here, TAINT)
    here.run(10)
    taint_slice(here)
    here.run(60)
    assert not is_gone(here)
    assert events(here) == ["Cancelling deletion"]


def test_taints_of_an_old_generation_do_not_count() -> None:
    here = cluster()
    here.create(SLICES, slice_of(generation=2, name="new"))
    taint_slice(here, TAINT)
    assert not is_gone(here)
    taint_slice(here, TAINT, generation=3)
    assert is_gone(here)


@pytest.mark.parametrize(
    ("selector", "evicts"),
    [
        ({"driver": DRIVER, "device": "gpu-0"}, True),
        ({}, True),
        ({"device": "gpu-1"}, False),
        ({"pool": "node-2"}, False),
    ],
)
def test_a_rule_evicts_and_reports(selector: dict[str, str], evicts: bool) -> None:
    here = cluster()
    here.create(RULES, rule_of(**selector))
    here.run(30)
    assert is_gone(here) == evicts
    text = "1 pod evicted since starting the controller." if evicts else ""
    assert condition(here) == ("False", "Completed" if evicts else "NotStarted", text)


def test_a_rule_without_selector_evicts_no_pod() -> None:
    here = cluster()
    made = rule_of()
    del made["spec"]["deviceSelector"]
    here.create(RULES, made)
    here.run(30)
    assert not is_gone(here)


def test_pods_that_wait_are_reported() -> None:
    here = cluster({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60})
    here.create(RULES, rule_of())
    here.run(5)
    text = "1 pod needs to be evicted in 1 namespace."
    assert condition(here) == ("True", "PodsPendingEviction", text)
    here.run(90)
    text = "1 pod evicted since starting the controller."
    assert condition(here) == ("False", "Completed", text)


@pytest.mark.parametrize(
    ("effect", "reason", "text"),
    [
        (
            "None",
            "NoEffect",
            "1 published device selected. 1 allocated device selected. 1 pod would be evicted in "
            "1 namespace if the effect was NoExecute. This information will not be updated again. "
            "Recreate the DeviceTaintRule to trigger an update.",
        ),
        ("NoSchedule", "OtherEffect", "Eviction only happens for the NoExecute effect."),
    ],
)
def test_a_rule_without_eviction_reports_why(effect: str, reason: str, text: str) -> None:
    here = cluster()
    here.create(RULES, rule_of(effect))
    here.run(30)
    assert not is_gone(here)
    assert condition(here) == ("False", reason, text)


def test_a_pod_that_is_bound_later_is_evicted_too() -> None:
    here = cluster()
    taint_slice(here, TAINT)
    assert is_gone(here)
    user: dict[str, Any] = pod("q")
    user["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    made = here.create("pods", user)
    claim = here.the(CLAIMS, "c")
    claim["status"] = {
        "allocation": {"devices": {"results": [RESULT]}},
        "reservedFor": [{"resource": "pods", "name": "q", "uid": made["metadata"]["uid"]}],
    }
    here.api.update_status(CLAIMS, claim)
    here.settle()
    assert "deletionTimestamp" not in here.the("pods", "q")["metadata"]
    here.server.bind(here.the("pods", "q"), "node-1", here.now)
    here.run(1)
    held = [one for one in here.list("pods") if one["metadata"]["name"] == "q"]
    assert not held or "deletionTimestamp" in held[0]["metadata"]
