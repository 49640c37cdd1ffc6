"""Resource claims: made from templates, reserved, deallocated and deleted."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.controllers.resource_claim import generate_name
from tests.apiserver.small_cluster import SmallCluster, Tree, pod

CLAIMS = "resource.k8s.io/resourceclaims"
TEMPLATES = "resource.k8s.io/resourceclaimtemplates"
FINALIZER = "resource.kubernetes.io/delete-protection"
REQUESTS = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}


def template(name: str = "one") -> Tree:
    meta = {"labels": {"team": "a"}, "annotations": {"note": "kept"}}
    return {"metadata": {"name": name}, "spec": {"metadata": meta, "spec": REQUESTS}}


def user(name: str = "p", notes: dict[str, str] | None = None, **spec: Any) -> Tree:
    """A pod with a claim from the template `one`, and container that uses it."""
    use = {"name": "gpu", "resourceClaimTemplateName": "one"}
    made = pod(name, notes=notes)
    made["spec"] |= {"resourceClaims": [use], **spec}
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return made


def cluster(*, schedules: bool = False) -> SmallCluster:
    here = SmallCluster(1, schedules=schedules)
    here.create(TEMPLATES, template())
    return here


def only_claim(here: SmallCluster) -> Tree:
    (found,) = here.list(CLAIMS, "default")
    return found


def allocate(here: SmallCluster, claim: Tree, *pods: Tree) -> Tree:
    """What the scheduler writes."""
    claim["metadata"]["finalizers"] = [FINALIZER]
    claim = here.api.update(CLAIMS, claim)
    users = [
        {"resource": "pods", "name": one["metadata"]["name"], "uid": one["metadata"]["uid"]}
        for one in pods
    ]
    claim["status"] = {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": users}
    return here.api.update_status(CLAIMS, claim)


def bind(here: SmallCluster, name: str) -> None:
    here.server.bind(here.the("pods", name), "node-1", here.now)


def test_a_claim_is_made_and_named_in_the_status() -> None:
    here = cluster()
    made = here.create("pods", user())
    here.settle()
    claim = only_claim(here)
    meta = claim["metadata"]
    assert meta["name"].startswith("p-gpu-")
    assert meta["labels"] == {"team": "a"}
    noted = {"note": "kept", "resource.kubernetes.io/pod-claim-name": "gpu"}
    assert meta["annotations"] == noted
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", made["metadata"]["uid"])
    assert owner["controller"] is owner["blockOwnerDeletion"] is True
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    statuses = here.the("pods", "p")["status"]["resourceClaimStatuses"]
    assert statuses == [{"name": "gpu", "resourceClaimName": meta["name"]}]


def test_a_missing_template_is_an_event_until_it_exists() -> None:
    here = SmallCluster(1, schedules=False)
    here.create("pods", user())
    here.settle()
    text = (
        'PodResourceClaim gpu: resource claim template "one": '
        'resourceclaimtemplate.resource.k8s.io "one" not found'
    )
    (event,) = here.list("events", "default")
    assert (event["reason"], event["message"]) == ("FailedResourceClaimCreation", text)
    here.create(TEMPLATES, template())
    here.settle()
    assert only_claim(here)["metadata"]["name"].startswith("p-gpu-")


def test_a_claim_that_was_not_noted_is_found_again() -> None:
    here = cluster()
    here.create("pods", user())
    here.settle()
    stored = here.the("pods", "p")
    stored["status"].pop("resourceClaimStatuses")
    here.api.update_status("pods", stored)
    here.settle()
    name = only_claim(here)["metadata"]["name"]
    assert here.the("pods", "p")["status"]["resourceClaimStatuses"][0]["resourceClaimName"] == name


def test_a_claim_that_is_lost_is_made_again() -> None:
    here = cluster()
    here.create("pods", user())
    here.settle()
    first = only_claim(here)["metadata"]["name"]
    here.api.delete(CLAIMS, "default", first)
    here.settle()
    second = only_claim(here)["metadata"]["name"]
    statuses = here.the("pods", "p")["status"]["resourceClaimStatuses"]
    assert second != first
    assert statuses == [{"name": "gpu", "resourceClaimName": second}]


def test_nothing_is_made_where_no_claim_is_needed() -> None:
    here = SmallCluster(1, schedules=False)
    here.create("pods", user())
    here.settle()
    stored = here.the("pods", "p")
    stored["status"]["resourceClaimStatuses"] = [{"name": "gpu"}]
    here.api.update_status("pods", stored)
    here.create(TEMPLATES, template())
    here.settle()
    assert here.list(CLAIMS, "default") == []


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_loses_its_claim(phase: str) -> None:
    here = cluster()
    here.create("pods", user(restartPolicy="Never"))
    here.settle()
    allocate(here, only_claim(here), here.the("pods", "p"))
    here.settle()
    assert only_claim(here)["status"]["reservedFor"], "the pod still needs it"
    stored = here.the("pods", "p")
    stored["status"]["phase"] = phase
    here.api.update_status("pods", stored)
    here.settle()
    assert here.list(CLAIMS, "default") == []
    assert here.get("pods", "p") is not None


def test_a_deleted_pod_loses_its_claim_once_it_is_gone() -> None:
    here = cluster()
    here.create("pods", user(notes={"stowplan.dev/stop-seconds": "5"}))
    here.settle()
    allocate(here, only_claim(here), here.the("pods", "p"))
    bind(here, "p")
    here.run(3)
    here.delete("pods", "p")
    here.run(2)
    assert only_claim(here)["status"]["reservedFor"], "its containers still run"
    here.run(20)
    assert here.get("pods", "p") is None
    assert here.list(CLAIMS, "default") == []


def test_a_shared_claim_is_deallocated_with_its_last_pod() -> None:
    here = SmallCluster(1, schedules=False)
    here.create(CLAIMS, {"metadata": {"name": "shared"}, "spec": REQUESTS})
    uses: Tree = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}]}
    pods = [here.create("pods", user(name, **uses)) for name in ("a", "b")]
    allocate(here, only_claim(here), *pods)
    here.settle()
    here.delete("pods", "a", grace_s=0)
    here.settle()
    left = only_claim(here)["status"]
    assert [one["name"] for one in left["reservedFor"]] == ["b"]
    assert left["allocation"]
    here.delete("pods", "b", grace_s=0)
    here.settle()
    claim = only_claim(here)
    assert claim["status"] == {}
    assert not claim["metadata"].get("finalizers")


def test_a_claim_is_kept_while_it_is_in_use() -> None:
    here = SmallCluster(1, schedules=False)
    here.create(CLAIMS, {"metadata": {"name": "shared"}, "spec": REQUESTS})
    uses: Tree = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}]}
    allocate(here, only_claim(here), here.create("pods", user("a", **uses)))
    here.delete(CLAIMS, "shared")
    here.settle()
    assert only_claim(here)["metadata"]["deletionTimestamp"]
    here.delete("pods", "a", grace_s=0)
    here.settle()
    assert here.list(CLAIMS, "default") == []


def test_an_unused_allocation_stays_until_the_claim_is_deleted() -> None:
    here = SmallCluster(1, schedules=False)
    here.create(CLAIMS, {"metadata": {"name": "shared"}, "spec": REQUESTS})
    allocate(here, only_claim(here))
    here.settle()
    assert only_claim(here)["status"]["allocation"]
    here.delete(CLAIMS, "shared")
    here.settle()
    assert here.list(CLAIMS, "default") == []


def test_a_pod_with_a_node_of_its_own_gets_a_reservation() -> None:
    here = SmallCluster(1, schedules=False)
    here.create(CLAIMS, {"metadata": {"name": "shared"}, "spec": REQUESTS})
    allocate(here, only_claim(here))
    uses: Tree = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}]}
    here.create("pods", user("a", nodeName="node-1", **uses))
    here.settle()
    assert [one["name"] for one in only_claim(here)["status"]["reservedFor"]] == ["a"]


def test_another_pod_of_the_name_does_not_keep_a_reservation() -> None:
    here = SmallCluster(1, schedules=False)
    here.create(CLAIMS, {"metadata": {"name": "shared"}, "spec": REQUESTS})
    ghost = {"metadata": {"name": "a", "uid": "of-another"}}
    here.create("pods", pod("a"))
    allocate(here, only_claim(here), ghost)
    here.settle()
    assert only_claim(here)["status"] == {}


@pytest.mark.parametrize(
    ("pod_name", "use", "expected"),
    [
        ("p", "gpu", "p-gpu-"),
        ("a" * 50, "b" * 5, "a" * 50 + "-" + "b" * 5 + "-"),
        ("a" * 60, "b" * 20, "a" * 41 + "-" + "b" * 13),
    ],
)
def test_long_names_are_shortened_alike(pod_name: str, use: str, expected: str) -> None:
    assert generate_name(pod_name, use) == expected
