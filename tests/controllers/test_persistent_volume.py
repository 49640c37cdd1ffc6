"""Claims are bound, volumes provisioned, and nothing in use is deleted."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.controllers.claim_matching import find_best_match
from tests.apiserver.small_cluster import Tree, World, pod

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
CLASSES = "storage.k8s.io/storageclasses"
SELECTED = "volume.kubernetes.io/selected-node"


def storage_class(name: str, mode: str = "Immediate", **more: Any) -> Tree:
    base: Tree = {"provisioner": "example.com/disk", "reclaimPolicy": "Delete"}
    return {"metadata": {"name": name}, **base, "volumeBindingMode": mode, **more}


def claim(name: str, class_name: str | None, size: str = "1Gi", **spec: Any) -> Tree:
    wanted: Tree = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        **spec,
    }
    if class_name is not None:
        wanted["storageClassName"] = class_name
    return {"metadata": {"name": name}, "spec": wanted}


def volume(name: str, class_name: str = "", size: str = "1Gi", **spec: Any) -> Tree:
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "hostPath": {"path": "/d"},
            "persistentVolumeReclaimPolicy": "Retain",
            **spec,
        },
    }


def phase(world: World, path: str, name: str) -> str:
    return str(world.the(path, name)["status"].get("phase"))


def test_a_volume_is_made_for_a_claim_of_an_immediate_class() -> None:
    world = World(1)
    world.create(CLASSES, storage_class("fast"))
    made = world.create(CLAIMS, claim("c", "fast", "5Gi"))
    world.settle()
    bound = world.the(CLAIMS, "c")
    assert bound["status"]["phase"] == "Bound"
    assert bound["status"]["capacity"] == {"storage": "5Gi"}
    assert bound["spec"]["volumeName"] == f"pvc-{made['metadata']['uid']}"
    assert bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"
    found = world.the(VOLUMES, bound["spec"]["volumeName"])
    assert found["spec"]["claimRef"]["uid"] == made["metadata"]["uid"]
    assert found["status"]["phase"] == "Bound"


def test_a_class_that_waits_gets_its_volume_when_a_node_is_chosen() -> None:
    world = World(3)
    world.create(CLASSES, storage_class("late", "WaitForFirstConsumer"))
    world.create(CLAIMS, claim("c", "late"))
    world.run(5)
    assert phase(world, CLAIMS, "c") == "Pending"
    assert "WaitForFirstConsumer" in {event["reason"] for event in world.list("events")}
    waiting = world.the(CLAIMS, "c")
    waiting["metadata"].setdefault("annotations", {})[SELECTED] = "node-2"
    world.api.update(CLAIMS, waiting)
    world.settle()
    bound = world.the(CLAIMS, "c")
    assert bound["status"]["phase"] == "Bound"
    found = world.the(VOLUMES, bound["spec"]["volumeName"])
    (term,) = found["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["zone-2"]


def test_the_smallest_sufficient_volume_is_bound() -> None:
    world = World(1)
    for name, size in (("big", "10Gi"), ("right", "3Gi"), ("small", "1Gi")):
        world.create(VOLUMES, volume(name, size=size))
    world.settle()
    assert phase(world, VOLUMES, "big") == "Available"
    world.create(CLAIMS, claim("c", "", "2Gi"))
    world.settle()
    assert world.the(CLAIMS, "c")["spec"]["volumeName"] == "right"
    assert world.the(CLAIMS, "c")["status"]["capacity"] == {"storage": "3Gi"}


def test_a_claim_waits_for_a_later_volume() -> None:
    world = World(1)
    world.create(CLAIMS, claim("c", ""))
    world.settle()
    assert phase(world, CLAIMS, "c") == "Pending"
    world.create(VOLUMES, volume("v"))
    world.settle()
    assert phase(world, CLAIMS, "c") == "Bound"


@pytest.mark.parametrize(("policy", "left"), [("Delete", None), ("Retain", "Released")])
def test_reclaim_policy_of_a_released_volume(policy: str, left: str | None) -> None:
    world = World(1)
    world.create(CLASSES, storage_class("fast", reclaimPolicy=policy))
    world.create(CLAIMS, claim("c", "fast"))
    world.settle()
    name = world.the(CLAIMS, "c")["spec"]["volumeName"]
    world.delete(CLAIMS, "c")
    world.settle()
    assert world.get(CLAIMS, "c") is None
    found = world.get(VOLUMES, name)
    assert (found["status"]["phase"] if found else None) == left


def test_a_claim_in_use_stays_until_its_pod_is_deleted() -> None:
    world = World(1)
    world.create(VOLUMES, volume("v"))
    world.create(CLAIMS, claim("c", ""))
    uses = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
    world.create("pods", pod("p", volumes=uses))
    world.run(5)
    world.delete(CLAIMS, "c")
    world.run(5)
    assert "deletionTimestamp" in world.the(CLAIMS, "c")["metadata"]
    world.delete("pods", "p")
    world.run(40)
    assert world.get(CLAIMS, "c") is None
    assert phase(world, VOLUMES, "v") == "Released"


def test_the_default_class_is_set_on_claims_without_class() -> None:
    world = World(1)
    marked = storage_class("dflt")
    note = "storageclass.kubernetes.io/is-default-class"
    marked["metadata"]["annotations"] = {note: "true"}
    world.create(CLASSES, marked)
    made = world.create(CLAIMS, claim("c", None))
    assert made["spec"]["storageClassName"] == "dflt"
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


def test_a_provisioner_may_take_its_time() -> None:
    world = World(1)
    slow = {"stowplan.dev/provision-seconds": "20"}
    world.create(CLASSES, storage_class("slow", parameters=slow))
    world.create(CLAIMS, claim("c", "slow"))
    world.run(19)
    assert phase(world, CLAIMS, "c") == "Pending"
    world.run(2)
    assert phase(world, CLAIMS, "c") == "Bound"


@pytest.mark.parametrize(
    "spec",
    [
        {"class_name": "other"},
        {"size": "500Mi"},
        {"accessModes": ["ReadOnlyMany"]},
        {"volumeMode": "Block"},
        {"claimRef": {"namespace": "default", "name": "another"}},
    ],
)
def test_volumes_that_do_not_fit(spec: Tree) -> None:
    found = {**volume("v", **spec), "status": {"phase": "Available"}}
    wanted = claim("c", "")
    wanted["metadata"] |= {"namespace": "default", "uid": "u"}
    assert find_best_match([found], wanted) is None


def test_a_reserved_volume_is_preferred() -> None:
    reserved = volume("r", size="9Gi", claimRef={"namespace": "default", "name": "c"})
    better = {**volume("b"), "status": {"phase": "Available"}}
    wanted = claim("c", "")
    wanted["metadata"] |= {"namespace": "default", "uid": "u"}
    assert find_best_match([better, reserved], wanted) is reserved
