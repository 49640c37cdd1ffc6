"""Claims of ephemeral volumes."""

from __future__ import annotations

from tests.apiserver.small_cluster import SmallCluster, Tree, pod
from tests.controllers.test_persistent_volume import CLAIMS, CLASSES, claim, storage_class

SPEC = claim("", "fast")["spec"]
LABELS = {"from": "template"}
VOLUMES = [
    {
        "name": "v",
        "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": LABELS}, "spec": SPEC}},
    }
]


def cluster() -> SmallCluster:
    made = SmallCluster(1)
    made.create(CLASSES, storage_class("fast"))
    return made


def owner(tree: Tree) -> tuple[str, str]:
    (one,) = tree["metadata"]["ownerReferences"]
    return one["kind"], one["uid"]


def test_a_claim_is_created_and_deleted_with_its_pod() -> None:
    here = cluster()
    made = here.create("pods", pod("p", volumes=VOLUMES))
    here.run(5)
    found = here.the(CLAIMS, "p-v")
    assert owner(found) == ("Pod", made["metadata"]["uid"])
    assert found["metadata"]["labels"] == LABELS
    assert found["status"]["phase"] == "Bound"
    assert here.the("pods", "p")["status"]["phase"] == "Running"
    here.api.delete("pods", "default", "p")
    here.run(60)
    assert here.list(CLAIMS, "default") == []


def test_a_claim_that_is_lost_is_made_again() -> None:
    here = cluster()
    here.create("pods", pod("p", volumes=VOLUMES))
    here.settle()
    first = here.the(CLAIMS, "p-v")["metadata"]["uid"]
    lost = here.the(CLAIMS, "p-v")
    lost["metadata"]["finalizers"] = []
    here.api.update(CLAIMS, lost)
    here.api.delete(CLAIMS, "default", "p-v")
    here.settle()
    assert here.the(CLAIMS, "p-v")["metadata"]["uid"] != first


def test_a_claim_of_another_owner_is_reported_and_kept() -> None:
    here = cluster()
    theirs = here.create(CLAIMS, claim("p-v", "fast"))
    here.create("pods", pod("p", volumes=VOLUMES))
    here.settle()
    assert here.the(CLAIMS, "p-v")["metadata"]["uid"] == theirs["metadata"]["uid"]
    messages = [one["message"] for one in here.list("events", "default")]
    wanted = "PVC default/p-v was not created for pod default/p (pod is not owner)"
    assert f"ephemeral volume v: {wanted}" in messages
