"""Claims of PodGroups: made once, named by the pods that share them, in use as long as the group is
there."""

from __future__ import annotations

from typing import Any

from stowplan.framework.feature_gates import FeatureGates
from tests.apiserver.small_cluster import SmallCluster, Tree
from tests.controllers.test_resource_claims import (
    CLAIMS,
    FINALIZER,
    RESULT,
    TEMPLATES,
    only_claim,
    template,
    user,
)

GROUPS = "scheduling.k8s.io/podgroups"
USE: Tree = {"name": "gpu", "resourceClaimTemplateName": "one"}
GATES = FeatureGates(generic_workload=True, dra_workload_resource_claims=True)


def cluster(gates: FeatureGates = GATES, *, has_template: bool = True) -> SmallCluster:
    here = SmallCluster(1, schedules=False, workloads=True, gates=gates)
    if has_template:
        here.create(TEMPLATES, template())
    return here


def group(*uses: Tree) -> Tree:
    spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": list(uses)}
    return {"metadata": {"name": "g"}, "spec": spec}


def member(name: str, **spec: Any) -> Tree:
    return user(name, schedulingGroup={"podGroupName": "g"}, **spec)


def named(here: SmallCluster, path: str, name: str) -> list[str]:
    """The claims that the status of a pod or a group names."""
    status = here.the(path, name).get("status") or {}
    return [one["resourceClaimName"] for one in status.get("resourceClaimStatuses") or ()]


def allocate(here: SmallCluster, claim: Tree, *users: Tree) -> None:
    claim["metadata"]["finalizers"] = [FINALIZER]
    claim = here.api.update(CLAIMS, claim)
    claim["status"] = {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": [*users]}
    here.api.update_status(CLAIMS, claim)


def consumer(here: SmallCluster) -> Tree:
    uid = here.the(GROUPS, "g")["metadata"]["uid"]
    return {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": uid}


def test_one_claim_for_all_pods_that_have_the_entry_of_the_group() -> None:
    here = cluster()
    # Pods may come before their group.
    here.create("pods", member("a"))
    here.settle()
    assert not here.list(CLAIMS)
    here.create(GROUPS, group(USE))
    here.create("pods", member("b"))
    here.settle()
    claim = only_claim(here)
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("PodGroup", "g", True)
    assert claim["metadata"]["name"].startswith("g-gpu-")
    name = claim["metadata"]["name"]
    assert named(here, GROUPS, "g") == named(here, "pods", "a") == named(here, "pods", "b")
    assert named(here, GROUPS, "g") == [name]


def test_other_entries_are_claims_of_the_pods() -> None:
    here = cluster()
    here.create(GROUPS, group({**USE, "name": "shared"}))
    here.create("pods", member("a"))
    here.settle()
    owners = {one["metadata"]["ownerReferences"][0]["kind"] for one in here.list(CLAIMS)}
    assert owners == {"PodGroup", "Pod"}


def test_without_the_gate_each_pod_has_a_claim() -> None:
    here = cluster(FeatureGates(generic_workload=True))
    here.create(GROUPS, group(USE))
    here.create("pods", member("a"))
    here.settle()
    assert only_claim(here)["metadata"]["ownerReferences"][0]["kind"] == "Pod"


def test_a_missing_template_is_an_event_of_the_group_until_it_exists() -> None:
    here = cluster(has_template=False)
    here.create(GROUPS, group(USE))
    here.create("pods", member("a"))
    here.settle()
    (event,) = (one for one in here.list("events") if one["involvedObject"]["kind"] == "PodGroup")
    assert event["reason"] == "FailedResourceClaimCreation"
    assert event["message"] == (
        'PodGroupResourceClaim gpu: resource claim template "one": '
        'resourceclaimtemplate.resource.k8s.io "one" not found'
    )
    here.create(TEMPLATES, template())
    here.settle()
    assert named(here, "pods", "a") == [only_claim(here)["metadata"]["name"]]


def test_a_claim_that_is_lost_is_made_again() -> None:
    here = cluster()
    here.create(GROUPS, group(USE))
    here.create("pods", member("a"))
    here.settle()
    first = only_claim(here)["metadata"]["name"]
    here.api.delete(CLAIMS, "default", first)
    here.settle()
    second = only_claim(here)["metadata"]["name"]
    assert second != first
    assert named(here, GROUPS, "g") == named(here, "pods", "a") == [second]


def test_a_claim_is_in_use_until_its_group_is_gone() -> None:
    here = cluster()
    here.create(GROUPS, group({"name": "gpu", "resourceClaimName": "shared"}))
    here.create(CLAIMS, {"metadata": {"name": "shared"}, "spec": template()["spec"]["spec"]})
    allocate(here, only_claim(here), consumer(here))
    here.settle()
    assert only_claim(here)["status"]["reservedFor"]
    here.api.delete(GROUPS, "default", "g")
    here.run(5)
    claim = only_claim(here)
    assert not claim.get("status")
    assert not claim["metadata"].get("finalizers")


def test_a_generated_claim_goes_with_its_group() -> None:
    here = cluster()
    here.create(GROUPS, group(USE))
    here.settle()
    allocate(here, only_claim(here), consumer(here))
    here.api.delete(GROUPS, "default", "g")
    here.run(60)
    assert not here.list(CLAIMS)


def test_a_pod_with_a_node_of_its_own_reserves_for_the_group_once() -> None:
    here = cluster()
    here.create(GROUPS, group(USE))
    here.settle()
    allocate(here, only_claim(here))
    for name in "ab":
        here.create("pods", member(name, nodeName="node-1"))
    here.settle()
    assert only_claim(here)["status"]["reservedFor"] == [consumer(here)]
