"""Unreachable nodes: taints, evictions, replacements, and their pods."""

from __future__ import annotations

import pytest

from stowplan.apis.machinery.errors import not_found
from stowplan.controller_runtime.object_fields import find_condition
from stowplan.controllers import pod_garbage_collector
from tests.apiserver.small_cluster import DEPLOYMENTS, SmallCluster, Tree, deployment, pod

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"


def silence(cluster: SmallCluster, name: str) -> None:
    node = cluster.the("nodes", name)
    node["metadata"].setdefault("annotations", {})["stowplan.dev/kubelet"] = "off"
    cluster.api.update("nodes", node)


def wake(cluster: SmallCluster, name: str) -> None:
    node = cluster.the("nodes", name)
    del node["metadata"]["annotations"]["stowplan.dev/kubelet"]
    cluster.api.update("nodes", node)


def taints(cluster: SmallCluster, name: str) -> list[tuple[str, str]]:
    return [(t["key"], t["effect"]) for t in cluster.the("nodes", name)["spec"].get("taints", ())]


def ready(obj: Tree) -> str:
    found = find_condition(obj["status"].get("conditions") or (), "Ready")
    return str(found["status"]) if found else ""


def test_a_simulated_node_is_ready_and_sends_heartbeats() -> None:
    cluster = SmallCluster(2)
    cluster.run(30)
    node = cluster.the("nodes", "node-1")
    assert ready(node) == "True"
    lease = cluster.the("coordination.k8s.io/leases", "node-1", "kube-node-lease")
    assert lease["spec"]["holderIdentity"] == "node-1"
    assert lease["spec"]["renewTime"] > "2001-09-09T01:47:00"
    cluster.run(600)
    assert taints(cluster, "node-1") == []


def test_a_silent_node_is_tainted_and_its_pods_replaced_elsewhere() -> None:
    cluster = SmallCluster(3)
    cluster.create(DEPLOYMENTS, deployment("web", 3))
    cluster.run(20)
    (lost,) = (p for p in cluster.pods() if p["spec"]["nodeName"] == "node-2")
    silence(cluster, "node-2")
    cluster.run(35)
    assert (ready(cluster.the("nodes", "node-2")), taints(cluster, "node-2")) == ("True", [])
    cluster.run(30)
    assert ready(cluster.the("nodes", "node-2")) == "Unknown"
    assert taints(cluster, "node-2") == [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
    assert ready(cluster.the("pods", lost["metadata"]["name"])) == "False"
    assert len(cluster.pods()) == 3
    cluster.run(310)
    gone = cluster.the("pods", lost["metadata"]["name"])
    assert "deletionTimestamp" in gone["metadata"]
    found = find_condition(gone["status"]["conditions"], "DisruptionTarget")
    assert (found or {})["reason"] == "DeletionByTaintManager"
    alive = [p for p in cluster.pods() if "deletionTimestamp" not in p["metadata"]]
    assert len(alive) == 3
    assert {p["spec"]["nodeName"] for p in alive} == {"node-1", "node-3"}


def test_a_node_that_speaks_again_keeps_its_pods() -> None:
    cluster = SmallCluster(1)
    cluster.create("pods", pod("a"))
    cluster.run(5)
    silence(cluster, "node-1")
    cluster.run(100)
    assert ready(cluster.the("pods", "a")) == "False"
    wake(cluster, "node-1")
    cluster.run(20)
    assert taints(cluster, "node-1") == []
    assert ready(cluster.the("nodes", "node-1")) == "True"
    assert ready(cluster.the("pods", "a")) == "True"
    cluster.run(400)
    assert "deletionTimestamp" not in cluster.the("pods", "a")["metadata"]


def test_a_deleted_pod_of_a_silent_node_waits_until_the_node_is_deleted() -> None:
    cluster = SmallCluster(1)
    cluster.create("pods", pod("a"))
    cluster.run(5)
    silence(cluster, "node-1")
    cluster.delete("pods", "a")
    cluster.run(120)
    assert cluster.get("pods", "a") is not None
    cluster.delete("nodes", "node-1")
    cluster.run(60)
    assert cluster.get("pods", "a") is None


def test_pods_of_a_node_that_never_was_are_lost() -> None:
    cluster = SmallCluster(1, schedules=False)
    made = cluster.create("pods", pod("a"))
    cluster.server.bind(made, "nowhere", cluster.now)
    cluster.run(30)
    assert cluster.get("pods", "a") is not None
    cluster.run(15)
    assert cluster.get("pods", "a") is None


def test_a_toleration_decides_how_long_a_pod_stays() -> None:
    cluster = SmallCluster(1)
    forever = {"key": "k", "operator": "Exists", "effect": "NoExecute"}
    cluster.create("pods", pod("stays", tolerations=[forever]))
    cluster.create("pods", pod("later", tolerations=[{**forever, "tolerationSeconds": 60}]))
    cluster.create("pods", pod("goes"))
    cluster.run(5)
    cluster.change("nodes", "node-1", "", taints=[{"key": "k", "effect": "NoExecute"}])
    cluster.run(5)
    assert [p["metadata"]["name"] for p in cluster.pods()] == ["later", "stays"]
    cluster.run(60)
    assert [p["metadata"]["name"] for p in cluster.pods()] == ["stays"]


def test_a_taint_that_is_lifted_in_time_changes_nothing() -> None:
    cluster = SmallCluster(1)
    tolerates = [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
    cluster.create("pods", pod("a", tolerations=tolerates))
    cluster.run(5)
    cluster.change("nodes", "node-1", "", taints=[{"key": "k", "effect": "NoExecute"}])
    cluster.run(30)
    cluster.change("nodes", "node-1", "", taints=[])
    cluster.run(100)
    assert "deletionTimestamp" not in cluster.the("pods", "a")["metadata"]


def test_conditions_and_cordon_become_taints_and_others_stay() -> None:
    cluster = SmallCluster(1)
    node = cluster.the("nodes", "node-1")
    node["spec"]["unschedulable"] = True
    node["spec"]["taints"] = [{"key": "mine", "effect": "NoSchedule"}]
    cluster.api.update("nodes", node)
    cluster.settle()
    assert taints(cluster, "node-1") == [
        ("mine", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ]
    cluster.change("nodes", "node-1", "", unschedulable=False)
    cluster.settle()
    assert taints(cluster, "node-1") == [("mine", "NoSchedule")]


def test_a_node_that_reports_not_ready_is_tainted() -> None:
    cluster = SmallCluster(1, simulates_nodes=False)
    node = cluster.the("nodes", "node-1")
    node["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "lastHeartbeatTime": "2001-09-09T01:46:40Z"},
        {"type": "DiskPressure", "status": "True"},
    ]
    cluster.api.update_status("nodes", node)
    cluster.settle()
    assert taints(cluster, "node-1") == [
        (NOT_READY, "NoSchedule"),
        (NOT_READY, "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ]


def test_a_node_without_a_kubelet_is_marked_after_its_start() -> None:
    cluster = SmallCluster(1, simulates_nodes=False)
    cluster.run(59)
    assert taints(cluster, "node-1") == []
    cluster.run(2)
    conditions = cluster.the("nodes", "node-1")["status"]["conditions"]
    assert {c["reason"] for c in conditions} == {"NodeStatusNeverUpdated"}
    assert taints(cluster, "node-1") == [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]


def test_without_a_place_for_leases_the_status_is_the_heartbeat() -> None:
    cluster = SmallCluster(1)
    right = cluster.api.create

    def no_leases(path: str, obj: Tree) -> Tree:
        if path == "coordination.k8s.io/leases":
            raise not_found("", "namespaces", "kube-node-lease")
        return right(path, obj)

    cluster.api.create = no_leases  # type: ignore[method-assign]
    cluster.delete("coordination.k8s.io/leases", "node-1", "kube-node-lease")
    cluster.run(200)
    assert (ready(cluster.the("nodes", "node-1")), taints(cluster, "node-1")) == ("True", [])


def test_of_too_many_ended_pods_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_garbage_collector, "TERMINATED_PODS_MAX", 2)
    cluster = SmallCluster(1)
    for name in ("a", "b", "c", "d"):
        cluster.create("pods", pod(name, restartPolicy="Never"))
        cluster.run(2)
    cluster.run(5)
    assert [each["metadata"]["name"] for each in cluster.pods()] == ["c", "d"]
