"""All controllers together: bounded steps, restarts from the store, and reproducible runs."""

from __future__ import annotations

import numpy as np

from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.assembly.controller_manager import ControllerManagerOptions
from stowplan.assembly.embedded_cluster import EmbeddedCluster
from tests.apiserver.small_cluster import DEPLOYMENTS, JOBS, World, deployment, job, pod


def test_a_step_is_bounded_and_reports_remaining_work() -> None:
    world = World(1, schedules=False)
    for n in range(30):
        world.create(DEPLOYMENTS, deployment(f"web-{n}", 3))
    before = world.server.version
    following = world.cluster.controller_manager.step(world.now, most=10)
    assert (following or 0.0) <= world.now
    assert world.server.version - before < 100
    world.settle()
    assert len(world.pods()) == 90


def test_a_cluster_continues_from_its_store() -> None:
    world = World(2)
    world.create(DEPLOYMENTS, deployment("web", 2))
    slow = {"stowplan.dev/run-seconds": "60"}
    world.create(JOBS, job("j", slow, completions=2))
    world.create("pods", pod("lone", notes=slow, restartPolicy="Never"))
    world.run(20)
    records = list(world.server.store.records())
    options = ApiServerOptions(registry=built_in_registry(), admission=default_admission())
    again = EmbeddedCluster(options, np.random.default_rng(8), records, ControllerManagerOptions())
    world.cluster, world.server, world.api = again, again.server, again.controller_manager.api
    world.run(1)
    assert world.the("pods", "lone")["status"]["phase"] == "Running"
    world.create("pods", pod("late"))
    world.run(5)
    # Nobody gets an address that somebody has.
    addresses = [p["status"]["podIP"] for p in world.pods()]
    assert len(set(addresses)) == len(addresses) == 5
    world.delete("pods", "late")
    world.run(5)
    assert [p["status"]["phase"] for p in world.pods()] == ["Running"] * 4
    world.run(50)
    assert world.the("pods", "lone")["status"]["phase"] == "Succeeded"
    world.run(100)
    assert world.the(JOBS, "j")["status"]["succeeded"] == 2
    assert len(world.pods(app="web")) == 2
    world.delete(DEPLOYMENTS, "web")
    world.run(60)
    assert world.pods(app="web") == []


def test_the_same_seed_gives_the_same_cluster() -> None:
    def history() -> list[tuple[str, bytes]]:
        world = World(3)
        world.create(DEPLOYMENTS, deployment("web", 4))
        world.create(JOBS, job("j", completions=3, parallelism=2))
        world.run(40)
        world.delete(DEPLOYMENTS, "web")
        world.run(40)
        return [
            (change.key, change.value)
            for change in world.server.changes(world.server.store.compacted)
        ]

    assert history() == history()


def test_controllers_can_be_disabled() -> None:
    manager_options = ControllerManagerOptions(controllers=False, hollow_nodes=False)
    options = ApiServerOptions(registry=built_in_registry(), admission=default_admission())
    cluster = EmbeddedCluster(options, np.random.default_rng(1), manager_options=manager_options)
    assert cluster.controller_manager.parts == []
    assert cluster.tick(1.0) is None or cluster.controller_manager.next_at() is None
