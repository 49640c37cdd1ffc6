"""Claims are bound, volumes provisioned, and nothing in use is deleted."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.controllers.claim_matching import find_best_match
from tests.apiserver.small_cluster import SmallCluster, Tree, pod

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


def phase(cluster: SmallCluster, path: str, name: str) -> str:
    return str(cluster.the(path, name)["status"].get("phase"))


def test_a_volume_is_made_for_a_claim_of_an_immediate_class() -> None:
    cluster = SmallCluster(1)
    cluster.create(CLASSES, storage_class("fast"))
    made = cluster.create(CLAIMS, claim("c", "fast", "5Gi"))
    cluster.settle()
    bound = cluster.the(CLAIMS, "c")
    assert bound["status"]["phase"] == "Bound"
    assert bound["status"]["capacity"] == {"storage": "5Gi"}
    assert bound["spec"]["volumeName"] == f"pvc-{made['metadata']['uid']}"
    assert bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"
    found = cluster.the(VOLUMES, bound["spec"]["volumeName"])
    assert found["spec"]["claimRef"]["uid"] == made["metadata"]["uid"]
    assert found["status"]["phase"] == "Bound"


def test_a_class_that_waits_gets_its_volume_when_a_node_is_chosen() -> None:
    cluster = SmallCluster(3)
    cluster.create(CLASSES, storage_class("late", "WaitForFirstConsumer"))
    cluster.create(CLAIMS, claim("c", "late"))
    cluster.run(5)
    assert phase(cluster, CLAIMS, "c") == "Pending"
    assert "WaitForFirstConsumer" in {event["reason"] for event in cluster.list("events")}
    waiting = cluster.the(CLAIMS, "c")
    waiting["metadata"].setdefault("annotations", {})[SELECTED] = "node-2"
    cluster.api.update(CLAIMS, waiting)
    cluster.settle()
    bound = cluster.the(CLAIMS, "c")
    assert bound["status"]["phase"] == "Bound"
    found = cluster.the(VOLUMES, bound["spec"]["volumeName"])
    (term,) = found["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["zone-2"]


def test_the_smallest_sufficient_volume_is_bound() -> None:
    cluster = SmallCluster(1)
    for name, size in (("big", "10Gi"), ("right", "3Gi"), ("small", "1Gi")):
        cluster.create(VOLUMES, volume(name, size=size))
    cluster.settle()
    assert phase(cluster, VOLUMES, "big") == "Available"
    cluster.create(CLAIMS, claim("c", "", "2Gi"))
    cluster.settle()
    assert cluster.the(CLAIMS, "c")["spec"]["volumeName"] == "right"
    assert cluster.the(CLAIMS, "c")["status"]["capacity"] == {"storage": "3Gi"}


def test_a_claim_waits_for_a_later_volume() -> None:
    cluster = SmallCluster(1)
    cluster.create(CLAIMS, claim("c", ""))
    cluster.settle()
    assert phase(cluster, CLAIMS, "c") == "Pending"
    cluster.create(VOLUMES, volume("v"))
    cluster.settle()
    assert phase(cluster, CLAIMS, "c") == "Bound"


@pytest.mark.parametrize(("policy", "left"), [("Delete", None), ("Retain", "Released")])
def test_reclaim_policy_of_a_released_volume(policy: str, left: str | None) -> None:
    cluster = SmallCluster(1)
    cluster.create(CLASSES, storage_class("fast", reclaimPolicy=policy))
    cluster.create(CLAIMS, claim("c", "fast"))
    cluster.settle()
    name = cluster.the(CLAIMS, "c")["spec"]["volumeName"]
    cluster.delete(CLAIMS, "c")
    cluster.settle()
    assert cluster.get(CLAIMS, "c") is None
    found = cluster.get(VOLUMES, name)
    assert (found["status"]["phase"] if found else None) == left


def test_a_claim_in_use_stays_until_its_pod_is_deleted() -> None:
    cluster = SmallCluster(1)
    cluster.create(VOLUMES, volume("v"))
    cluster.create(CLAIMS, claim("c", ""))
    uses = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
    cluster.create("pods", pod("p", volumes=uses))
    cluster.run(5)
    cluster.delete(CLAIMS, "c")
    cluster.run(5)
    assert "deletionTimestamp" in cluster.the(CLAIMS, "c")["metadata"]
    cluster.delete("pods", "p")
    cluster.run(40)
    assert cluster.get(CLAIMS, "c") is None
    assert phase(cluster, VOLUMES, "v") == "Released"


def test_the_default_class_is_set_on_claims_without_class() -> None:
    cluster = SmallCluster(1)
    marked = storage_class("dflt")
    note = "storageclass.kubernetes.io/is-default-class"
    marked["metadata"]["annotations"] = {note: "true"}
    cluster.create(CLASSES, marked)
    made = cluster.create(CLAIMS, claim("c", None))
    assert made["spec"]["storageClassName"] == "dflt"
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


def test_a_provisioner_may_take_its_time() -> None:
    cluster = SmallCluster(1)
    slow = {"stowplan.dev/provision-seconds": "20"}
    cluster.create(CLASSES, storage_class("slow", parameters=slow))
    cluster.create(CLAIMS, claim("c", "slow"))
    cluster.run(19)
    assert phase(cluster, CLAIMS, "c") == "Pending"
    cluster.run(2)
    assert phase(cluster, CLAIMS, "c") == "Bound"


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
