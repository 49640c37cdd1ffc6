"""Unreachable nodes: taints, evictions, replacements, and their pods."""

from __future__ import annotations

import pytest

from stowplan.apis.machinery.errors import not_found
from stowplan.controller_runtime.object_fields import find_condition
from stowplan.controllers import pod_garbage_collector
from tests.apiserver.small_cluster import DEPLOYMENTS, Tree, World, deployment, pod

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"


def silence(world: World, name: str) -> None:
    node = world.the("nodes", name)
    node["metadata"].setdefault("annotations", {})["stowplan.dev/kubelet"] = "off"
    world.api.update("nodes", node)


def wake(world: World, name: str) -> None:
    node = world.the("nodes", name)
    del node["metadata"]["annotations"]["stowplan.dev/kubelet"]
    world.api.update("nodes", node)


def taints(world: World, name: str) -> list[tuple[str, str]]:
    return [(t["key"], t["effect"]) for t in world.the("nodes", name)["spec"].get("taints", ())]


def ready(obj: Tree) -> str:
    found = find_condition(obj["status"].get("conditions") or (), "Ready")
    return str(found["status"]) if found else ""


def test_a_hollow_node_is_ready_and_beats() -> None:
    world = World(2)
    world.run(30)
    node = world.the("nodes", "node-1")
    assert ready(node) == "True"
    lease = world.the("coordination.k8s.io/leases", "node-1", "kube-node-lease")
    assert lease["spec"]["holderIdentity"] == "node-1"
    assert lease["spec"]["renewTime"] > "2001-09-09T01:47:00"
    world.run(600)
    assert taints(world, "node-1") == []


def test_a_silent_node_is_tainted_and_its_pods_replaced_elsewhere() -> None:
    world = World(3)
    world.create(DEPLOYMENTS, deployment("web", 3))
    world.run(20)
    (lost,) = (p for p in world.pods() if p["spec"]["nodeName"] == "node-2")
    silence(world, "node-2")
    world.run(35)
    assert (ready(world.the("nodes", "node-2")), taints(world, "node-2")) == ("True", [])
    world.run(30)
    assert ready(world.the("nodes", "node-2")) == "Unknown"
    assert taints(world, "node-2") == [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
    assert ready(world.the("pods", lost["metadata"]["name"])) == "False"
    assert len(world.pods()) == 3
    world.run(310)
    gone = world.the("pods", lost["metadata"]["name"])
    assert "deletionTimestamp" in gone["metadata"]
    found = find_condition(gone["status"]["conditions"], "DisruptionTarget")
    assert (found or {})["reason"] == "DeletionByTaintManager"
    alive = [p for p in world.pods() if "deletionTimestamp" not in p["metadata"]]
    assert len(alive) == 3
    assert {p["spec"]["nodeName"] for p in alive} == {"node-1", "node-3"}


def test_a_node_that_speaks_again_keeps_its_pods() -> None:
    world = World(1)
    world.create("pods", pod("a"))
    world.run(5)
    silence(world, "node-1")
    world.run(100)
    assert ready(world.the("pods", "a")) == "False"
    wake(world, "node-1")
    world.run(20)
    assert taints(world, "node-1") == []
    assert ready(world.the("nodes", "node-1")) == "True"
    assert ready(world.the("pods", "a")) == "True"
    world.run(400)
    assert "deletionTimestamp" not in world.the("pods", "a")["metadata"]


def test_a_deleted_pod_of_a_silent_node_waits_until_the_node_is_deleted() -> None:
    world = World(1)
    world.create("pods", pod("a"))
    world.run(5)
    silence(world, "node-1")
    world.delete("pods", "a")
    world.run(120)
    assert world.get("pods", "a") is not None
    world.delete("nodes", "node-1")
    world.run(60)
    assert world.get("pods", "a") is None


def test_pods_of_a_node_that_never_was_are_lost() -> None:
    world = World(1, schedules=False)
    made = world.create("pods", pod("a"))
    world.server.bind(made, "nowhere", world.now)
    world.run(30)
    assert world.get("pods", "a") is not None
    world.run(15)
    assert world.get("pods", "a") is None


def test_a_toleration_decides_how_long_a_pod_stays() -> None:
    world = World(1)
    forever = {"key": "k", "operator": "Exists", "effect": "NoExecute"}
    world.create("pods", pod("stays", tolerations=[forever]))
    world.create("pods", pod("later", tolerations=[{**forever, "tolerationSeconds": 60}]))
    world.create("pods", pod("goes"))
    world.run(5)
    world.change("nodes", "node-1", "", taints=[{"key": "k", "effect": "NoExecute"}])
    world.run(5)
    assert [p["metadata"]["name"] for p in world.pods()] == ["later", "stays"]
    world.run(60)
    assert [p["metadata"]["name"] for p in world.pods()] == ["stays"]


def test_a_taint_that_is_lifted_in_time_changes_nothing() -> None:
    world = World(1)
    tolerates = [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
    world.create("pods", pod("a", tolerations=tolerates))
    world.run(5)
    world.change("nodes", "node-1", "", taints=[{"key": "k", "effect": "NoExecute"}])
    world.run(30)
    world.change("nodes", "node-1", "", taints=[])
    world.run(100)
    assert "deletionTimestamp" not in world.the("pods", "a")["metadata"]


def test_conditions_and_cordon_become_taints_and_others_stay() -> None:
    world = World(1)
    node = world.the("nodes", "node-1")
    node["spec"]["unschedulable"] = True
    node["spec"]["taints"] = [{"key": "mine", "effect": "NoSchedule"}]
    world.api.update("nodes", node)
    world.settle()
    assert taints(world, "node-1") == [
        ("mine", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ]
    world.change("nodes", "node-1", "", unschedulable=False)
    world.settle()
    assert taints(world, "node-1") == [("mine", "NoSchedule")]


def test_a_node_that_reports_not_ready_is_tainted() -> None:
    world = World(1, hollow=False)
    node = world.the("nodes", "node-1")
    node["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "lastHeartbeatTime": "2001-09-09T01:46:40Z"},
        {"type": "DiskPressure", "status": "True"},
    ]
    world.api.update_status("nodes", node)
    world.settle()
    assert taints(world, "node-1") == [
        (NOT_READY, "NoSchedule"),
        (NOT_READY, "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ]


def test_a_node_without_a_kubelet_is_marked_after_its_start() -> None:
    world = World(1, hollow=False)
    world.run(59)
    assert taints(world, "node-1") == []
    world.run(2)
    conditions = world.the("nodes", "node-1")["status"]["conditions"]
    assert {c["reason"] for c in conditions} == {"NodeStatusNeverUpdated"}
    assert taints(world, "node-1") == [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]


def test_without_a_place_for_leases_the_status_is_the_heartbeat() -> None:
    world = World(1)
    right = world.api.create

    def no_leases(path: str, obj: Tree) -> Tree:
        if path == "coordination.k8s.io/leases":
            raise not_found("", "namespaces", "kube-node-lease")
        return right(path, obj)

    world.api.create = no_leases  # type: ignore[method-assign]
    world.delete("coordination.k8s.io/leases", "node-1", "kube-node-lease")
    world.run(200)
    assert (ready(world.the("nodes", "node-1")), taints(world, "node-1")) == ("True", [])


def test_of_too_many_ended_pods_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_garbage_collector, "TERMINATED_PODS_MAX", 2)
    world = World(1)
    for name in ("a", "b", "c", "d"):
        world.create("pods", pod(name, restartPolicy="Never"))
        world.run(2)
    world.run(5)
    assert [each["metadata"]["name"] for each in world.pods()] == ["c", "d"]
