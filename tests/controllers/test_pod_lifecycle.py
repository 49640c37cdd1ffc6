"""All controllers together: bounded steps, restarts from the store, and reproducible runs."""

from __future__ import annotations

import numpy as np

from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.assembly.controller_manager import ControllerManagerOptions
from stowplan.assembly.embedded_cluster import EmbeddedCluster
from tests.apiserver.small_cluster import DEPLOYMENTS, JOBS, SmallCluster, deployment, job, pod


def test_a_step_is_bounded_and_reports_remaining_work() -> None:
    small = SmallCluster(1, schedules=False)
    for n in range(30):
        small.create(DEPLOYMENTS, deployment(f"web-{n}", 3))
    before = small.server.version
    following = small.cluster.controller_manager.step(small.now, most=10)
    assert (following or 0.0) <= small.now
    assert small.server.version - before < 100
    small.settle()
    assert len(small.pods()) == 90


def test_a_cluster_continues_from_its_store() -> None:
    small = SmallCluster(2)
    small.create(DEPLOYMENTS, deployment("web", 2))
    slow = {"stowplan.dev/run-seconds": "60"}
    small.create(JOBS, job("j", slow, completions=2))
    small.create("pods", pod("lone", notes=slow, restartPolicy="Never"))
    small.run(20)
    records = list(small.server.store.records())
    options = ApiServerOptions(registry=built_in_registry(), admission=default_admission())
    again = EmbeddedCluster(options, np.random.default_rng(8), records, ControllerManagerOptions())
    small.cluster, small.server, small.api = again, again.server, again.controller_manager.api
    small.run(1)
    assert small.the("pods", "lone")["status"]["phase"] == "Running"
    small.create("pods", pod("late"))
    small.run(5)
    # Nobody gets an address that somebody has.
    addresses = [p["status"]["podIP"] for p in small.pods()]
    assert len(set(addresses)) == len(addresses) == 5
    small.delete("pods", "late")
    small.run(5)
    assert [p["status"]["phase"] for p in small.pods()] == ["Running"] * 4
    small.run(50)
    assert small.the("pods", "lone")["status"]["phase"] == "Succeeded"
    small.run(100)
    assert small.the(JOBS, "j")["status"]["succeeded"] == 2
    assert len(small.pods(app="web")) == 2
    small.delete(DEPLOYMENTS, "web")
    small.run(60)
    assert small.pods(app="web") == []


def test_the_same_seed_gives_the_same_cluster() -> None:
    def history() -> list[tuple[str, bytes]]:
        small = SmallCluster(3)
        small.create(DEPLOYMENTS, deployment("web", 4))
        small.create(JOBS, job("j", completions=3, parallelism=2))
        small.run(40)
        small.delete(DEPLOYMENTS, "web")
        small.run(40)
        return [
            (change.key, change.value)
            for change in small.server.changes(small.server.store.compacted)
        ]

    assert history() == history()


def test_controllers_can_be_disabled() -> None:
    manager_options = ControllerManagerOptions(controllers=False, hollow_nodes=False)
    options = ApiServerOptions(registry=built_in_registry(), admission=default_admission())
    cluster = EmbeddedCluster(options, np.random.default_rng(1), manager_options=manager_options)
    assert cluster.controller_manager.parts == []
    assert cluster.tick(1.0) is None or cluster.controller_manager.next_at() is None


def amounts(cpu: str) -> dict[str, dict[str, str]]:
    return {"requests": {"cpu": cpu}, "limits": {"cpu": "8"}}


def resized(small: SmallCluster, name: str, cpu: str) -> None:
    resource = small.server.registry.by_path("pods")
    assert resource is not None
    found = small.the("pods", name)
    found["spec"]["containers"][0]["resources"] = amounts(cpu)
    small.server.update(resource, found, small.now, "resize")
    small.settle()


def test_running_pods_get_what_they_are_resized_to() -> None:
    small = SmallCluster(1, capacity={"cpu": "8", "memory": "8Gi", "pods": "10"})
    for name in ("a", "b"):
        made = pod(name)
        made["spec"]["containers"][0]["resources"] = amounts("3")
        small.create("pods", made)
    small.run(5)
    resized(small, "a", "5")
    (entry,) = small.the("pods", "a")["status"]["containerStatuses"]
    assert (entry["resources"], entry["allocatedResources"]) == (amounts("5"), {"cpu": "5"})
    assert entry["restartCount"] == 0
    events = [one for one in small.list("events") if one["reason"] == "ResizeCompleted"]
    assert [one["involvedObject"]["name"] for one in events] == ["a"]
    assert '"requests":{"cpu":"5"}' in events[0]["message"]

    # The node has 8 CPUs: b waits until a takes less.
    resized(small, "b", "4")
    status = small.the("pods", "b")["status"]
    assert status["containerStatuses"][0]["resources"] == amounts("3")
    (condition,) = (one for one in status["conditions"] if one["type"] == "PodResizePending")
    assert (condition["status"], condition["reason"]) == ("True", "Deferred")
    assert "cpu, requested: 4000, used: 5000, capacity: 8000" in condition["message"]
    resized(small, "a", "4")
    status = small.the("pods", "b")["status"]
    assert status["containerStatuses"][0]["resources"] == amounts("4")
    assert not any(one["type"] == "PodResizePending" for one in status["conditions"])
    assert status["observedGeneration"] == small.the("pods", "b")["metadata"]["generation"]
