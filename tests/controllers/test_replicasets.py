"""ReplicaSets: the number of pods, and the order of deletion."""

from __future__ import annotations

from stowplan.controller_runtime.object_index import PodFacts
from stowplan.controllers.workloads.pod_control import deletion_order
from tests.apiserver.small_cluster import SETS, SmallCluster, Tree, pod, template


def replica_set(name: str, replicas: int, notes: dict[str, str] | None = None) -> Tree:
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": replicas, "selector": selector, "template": template(name, notes)}
    return {"metadata": {"name": name}, "spec": spec}


def facts(name: str, **more: object) -> PodFacts:
    base: dict[str, object] = {
        "key": ("default", name),
        "uid": name,
        "labels": {},
        "owner": "o",
        "owner_kind": "ReplicaSet",
        "owner_name": "o",
        "node": "n",
        "phase": "Running",
        "ready": True,
        "ready_since": 1000.0,
        "created": 1000.0,
        "deleting": 0.0,
        "cost": 0,
        "restarts": 0,
        "restarts_sum": 0,
        "finalizers": (),
    }
    return PodFacts(**{**base, **more})  # type: ignore[arg-type]


def order(*pods: PodFacts, now: float = 2000.0) -> list[str]:
    return [each.uid for each in deletion_order(pods, pods, now)]


def test_deleted_and_failed_pods_are_replaced() -> None:
    cluster = SmallCluster(2)
    cluster.create(SETS, replica_set("a", 3))
    cluster.run(5)
    names = {each["metadata"]["name"] for each in cluster.pods()}
    cluster.delete("pods", min(names))
    cluster.settle()
    alive = {
        p["metadata"]["name"] for p in cluster.pods() if "deletionTimestamp" not in p["metadata"]
    }
    assert len(alive) == 3
    assert len(names & alive) == 2
    failed = cluster.the("pods", max(alive))
    failed["status"]["phase"] = "Failed"
    cluster.api.update_status("pods", failed)
    cluster.run(5)
    running = [p for p in cluster.pods() if p["status"]["phase"] == "Running"]
    assert len(running) == 3


def test_a_matching_orphan_is_adopted_and_others_released() -> None:
    cluster = SmallCluster(2)
    cluster.create("pods", pod("a"))
    cluster.create(SETS, replica_set("a", 2))
    cluster.run(5)
    assert len(cluster.pods()) == 2
    assert cluster.the("pods", "a")["metadata"]["ownerReferences"][0]["name"] == "a"
    adopted = cluster.the("pods", "a")
    adopted["metadata"]["labels"] = {"app": "other"}
    cluster.api.update("pods", adopted)
    cluster.run(5)
    assert cluster.the("pods", "a")["metadata"].get("ownerReferences", []) == []
    assert len(cluster.pods()) == 3


def test_status_counts_what_is_terminating() -> None:
    cluster = SmallCluster(2)
    cluster.create(SETS, replica_set("a", 3, {"stowplan.dev/stop-seconds": "10"}))
    cluster.run(5)
    changed = cluster.the(SETS, "a")
    changed["spec"]["replicas"] = 1
    cluster.api.update(SETS, changed)
    cluster.settle()
    status = cluster.the(SETS, "a")["status"]
    assert (status["replicas"], status["terminatingReplicas"]) == (1, 2)
    cluster.run(20)
    status = cluster.the(SETS, "a")["status"]
    assert (status["replicas"], status["terminatingReplicas"]) == (1, 0)


def test_the_least_advanced_pods_are_deleted_first() -> None:
    pods = [
        facts("running"),
        facts("unbound", node="", phase="Pending", ready=False),
        facts("pending", phase="Pending", ready=False),
        facts("unready", ready=False),
    ]
    assert order(*pods) == ["unbound", "pending", "unready", "running"]


def test_cost_then_crowding_then_age_decide_among_ready_pods() -> None:
    assert order(facts("dear", cost=10), facts("cheap", cost=-5)) == ["cheap", "dear"]
    candidates = [facts("alone", node="m"), facts("x"), facts("y")]
    assert order(*candidates)[-1] == "alone"
    young = facts("young", ready_since=1990.0, created=1990.0, node="m")
    assert order(facts("old"), young) == ["young", "old"]


def test_ages_of_the_same_magnitude_are_equal() -> None:
    assert order(facts("b", ready_since=1000.0), facts("a", ready_since=1001.0, node="m")) == [
        "a",
        "b",
    ]


def test_a_creation_that_is_refused_shows_in_the_status() -> None:
    cluster = SmallCluster(1)
    bad = replica_set("a", 1)
    bad["spec"]["template"]["spec"]["priorityClassName"] = "nosuch"
    cluster.create(SETS, bad)
    cluster.settle()
    conditions = cluster.the(SETS, "a")["status"]["conditions"]
    assert [(c["type"], c["status"], c["reason"]) for c in conditions] == [
        ("ReplicaFailure", "True", "FailedCreate")
    ]
    meta = {"metadata": {"name": "nosuch"}, "value": 5}
    cluster.create("scheduling.k8s.io/priorityclasses", meta)
    cluster.run(30)
    assert cluster.the(SETS, "a")["status"]["readyReplicas"] == 1
    assert cluster.the(SETS, "a")["status"].get("conditions", []) == []
