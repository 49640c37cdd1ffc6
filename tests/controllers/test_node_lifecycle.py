"""Unreachable nodes: taints, evictions, replacements, and their pods."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stowplan.apis.machinery.errors import ApiError, not_found
from stowplan.apis.machinery.timestamps import format_time
from stowplan.controller_runtime.object_fields import find_condition
from stowplan.controllers import pod_garbage_collector
from stowplan.controllers.node_lifecycle.node_lifecycle_options import NodeLifecycleOptions
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
    cluster = SmallCluster(2, simulates_nodes=False)
    for name, status in (("node-2", "True"), ("node-1", "False")):
        node = cluster.the("nodes", name)
        node["status"]["conditions"] = [
            {"type": "Ready", "status": status, "lastHeartbeatTime": "2001-09-09T01:46:40Z"},
            {"type": "DiskPressure", "status": "True"},
        ]
        cluster.api.update_status("nodes", node)
    cluster.run(11)
    assert taints(cluster, "node-1") == [
        (NOT_READY, "NoSchedule"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        (NOT_READY, "NoExecute"),
    ]


def test_a_node_without_a_kubelet_is_marked_after_its_start() -> None:
    cluster = SmallCluster(1, simulates_nodes=False)
    cluster.run(59)
    assert taints(cluster, "node-1") == []
    cluster.run(2)
    conditions = cluster.the("nodes", "node-1")["status"]["conditions"]
    assert {c["reason"] for c in conditions} == {"NodeStatusNeverUpdated"}
    # No node is ready: rather the control plane is cut off than all nodes are down.
    assert taints(cluster, "node-1") == [(UNREACHABLE, "NoSchedule")]


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


# Zones.


def no_execute(cluster: SmallCluster) -> list[str]:
    """Names of the nodes from which pods are evicted."""
    names = [each["metadata"]["name"] for each in cluster.list("nodes")]
    return [name for name in names if "NoExecute" in dict(map(reversed, taints(cluster, name)))]


def in_zones(*zones: str, options: NodeLifecycleOptions | None = None) -> SmallCluster:
    """A cluster without kubelets; a letter of each text is a node of that zone: `r` is ready."""
    cluster = SmallCluster(0, simulates_nodes=False, node_lifecycle=options)
    for number, zone in enumerate(zones):
        for at in range(len(zone)):
            labels = {"topology.kubernetes.io/zone": f"z{number}"}
            cluster.create("nodes", {"metadata": {"name": f"{number}-{at:02}", "labels": labels}})
    report(cluster, *zones)
    return cluster


def report(cluster: SmallCluster, *zones: str) -> None:
    """Let the nodes post their status: `r`: Ready, `n`: not, `u`: as if the kubelet is unknown."""
    statuses = {"r": "True", "n": "False", "u": "Unknown"}
    for number, zone in enumerate(zones):
        for at, letter in enumerate(zone):
            node = cluster.the("nodes", f"{number}-{at:02}")
            moment = format_time(cluster.now)
            node["status"]["conditions"] = [
                {"type": "Ready", "status": statuses[letter], "lastHeartbeatTime": moment}
            ]
            cluster.api.now = cluster.now
            cluster.api.update_status("nodes", node)
    cluster.settle()


ALWAYS_ALIVE = NodeLifecycleOptions(node_monitor_grace_period_s=1e6)


@pytest.mark.parametrize(
    ("zones", "large", "counts"),
    [
        # 0, 5, 15, 25 and 105 s after the nodes reported; a zone has its first token at the start.
        (("nnrrrr",), 50, (1, 1, 2, 2, 2)),
        # Four of seven, 0.57: unhealthy; a small zone is not evicted, a large one slowly.
        (("nnnnrrr",), 50, (0, 0, 0, 0, 0)),
        (("nnnnrrr",), 6, (1, 1, 1, 1, 2)),
        (("nnnnrrr",), 7, (0, 0, 0, 0, 0)),
        # Two of three: too few to be unhealthy.
        (("nnr",), 50, (1, 1, 2, 2, 2)),
        # A zone that is down while another is not: as usual, and each zone by itself.
        (("nnnnnn", "rrnnrr"), 50, (2, 2, 4, 5, 8)),
        # All are down.
        (("nnnn", "nn"), 50, (0, 0, 0, 0, 0)),
    ],
)
def test_nodes_are_tainted_as_fast_as_their_zone_allows(
    zones: tuple[str, ...], large: int, counts: tuple[int, ...]
) -> None:
    options = replace(ALWAYS_ALIVE, large_cluster_size_threshold=large)
    cluster = in_zones(*("r" * len(zone) for zone in zones), options=options)
    # Some were not ready before the first had reported: the queues begin with a full token again.
    cluster.run(200)
    report(cluster, *zones)
    found = []
    for seconds in (0, 5, 10, 10, 80):
        cluster.run(seconds)
        found.append(len(no_execute(cluster)))
    assert tuple(found) == counts


def test_nodes_are_tainted_in_the_order_in_which_they_failed() -> None:
    cluster = in_zones("rrrrrr", options=ALWAYS_ALIVE)
    cluster.run(100)
    report(cluster, "rrrnrr")
    report(cluster, "rnrnrr")
    report(cluster, "nrrnrr")
    assert no_execute(cluster) == ["0-03"]
    cluster.run(11)
    assert no_execute(cluster) == ["0-00", "0-03"]


def test_without_a_ready_node_taints_are_removed_and_come_back_by_turns() -> None:
    cluster = in_zones("rrrr", "rr", options=ALWAYS_ALIVE)
    cluster.run(100)
    report(cluster, "nnrr", "nr")
    assert no_execute(cluster) == ["0-00", "1-00"]
    report(cluster, "nnnn", "nn")
    assert no_execute(cluster) == []
    assert [t[1] for t in taints(cluster, "0-00")] == ["NoSchedule"]
    cluster.run(1000)
    assert no_execute(cluster) == []
    report(cluster, "nnrr", "nn")
    assert no_execute(cluster) == []
    cluster.run(11)
    # Those that waited when all were lost are first.
    assert no_execute(cluster) == ["0-01", "1-01"]
    cluster.run(10)
    assert no_execute(cluster) == ["0-00", "0-01", "1-00", "1-01"]


def test_heartbeats_count_anew_when_a_node_is_back() -> None:
    cluster = SmallCluster(2)
    cluster.run(30)
    silence(cluster, "node-1")
    cluster.run(45)
    silence(cluster, "node-2")
    report_of = cluster.cluster.controller_manager
    cluster.run(60)
    assert {ready(node) for node in cluster.list("nodes")} == {"Unknown"}
    assert report_of.failing()["node-lifecycle"] == 0
    wake(cluster, "node-1")
    cluster.run(11)
    assert ready(cluster.the("nodes", "node-1")) == "True"


def test_an_excluded_node_does_not_count_for_its_zone() -> None:
    cluster = in_zones("rrrrrrr", options=ALWAYS_ALIVE)
    cluster.run(100)
    for at in range(3):
        node = cluster.the("nodes", f"0-{at:02}")
        node["metadata"]["labels"]["node.kubernetes.io/exclude-disruption"] = ""
        cluster.api.update("nodes", node)
    report(cluster, "nnnnrrr")
    cluster.run(25)
    assert len(no_execute(cluster)) == 3


def test_the_reason_of_a_taint_changes_at_once() -> None:
    cluster = in_zones("rrrr", options=ALWAYS_ALIVE)
    cluster.run(100)
    report(cluster, "nrrr")
    report(cluster, "urrr")
    assert set(taints(cluster, "0-00")) == {
        (UNREACHABLE, "NoSchedule"),
        (UNREACHABLE, "NoExecute"),
    }


def test_a_taint_of_a_new_node_waits_for_its_turn() -> None:
    cluster = in_zones("rrrr", options=ALWAYS_ALIVE)
    cluster.run(100)
    report(cluster, "nrrr")
    taint = [{"key": NOT_READY, "effect": "NoExecute"}]
    labels = {"topology.kubernetes.io/zone": "z0"}
    status = {"conditions": [{"type": "Ready", "status": "False"}]}
    new = {"metadata": {"name": "new", "labels": labels}, "spec": {"taints": taint}}
    cluster.create("nodes", new | {"status": status})
    node = cluster.the("nodes", "new")
    cluster.api.update_status("nodes", node | {"status": status})
    cluster.settle()
    assert no_execute(cluster) == ["0-00"]
    cluster.run(11)
    assert no_execute(cluster) == ["0-00", "new"]


def test_a_taint_that_cannot_be_written_waits_for_the_next_turn() -> None:
    cluster = in_zones("rrrr", options=ALWAYS_ALIVE)
    cluster.run(100)
    write, refused = cluster.api.update, []

    def busy(path: str, obj: Tree) -> Tree:
        if any(each["effect"] == "NoExecute" for each in obj["spec"].get("taints", ())):
            refused.append(cluster.now)
            raise ApiError(503, "ServiceUnavailable", "busy")
        return write(path, obj)

    cluster.api.update = busy  # type: ignore[method-assign]
    report(cluster, "nrrr")
    cluster.run(25)
    cluster.api.update = write  # type: ignore[method-assign]
    assert [at - refused[0] for at in refused] == [0.0, 10.0, 20.0]
    cluster.run(10)
    assert no_execute(cluster) == ["0-00"]
