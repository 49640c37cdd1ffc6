"""What each mended defect of kube-batch v0.5 changes: one small case each, with both answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.assembly.sessions.session_config import batch_configuration
from stowplan.batch.state import task_requests
from stowplan.config.session_configuration import KUBE_BATCH_0_5
from stowplan.framework import ConfigError
from stowplan.framework.deciders.resource_vector import ResourceVector
from stowplan.kube_batch_v05 import amounts
from stowplan.kube_batch_v05.amounts import KubeBatchPanic
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.pod import (
    Affinity,
    NodeAffinity,
    PodSchedulingGate,
)
from stowplan.objects.selectors import (
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from stowplan.objects.workload import PodDisruptionBudget, PodDisruptionBudgetSpec
from tests.batch.batch_cluster import GPU, START, BatchCluster
from tests.batch.session_driver import SessionDriver, binds, member
from tests.kube_batch_v05.kube_batch_cluster import KubeBatchCluster
from tests.scenarios import group_commands

Make = Callable[..., BatchCluster]
"""Makes a cluster decided by one of the two."""

PARITY = Path(__file__).parents[2] / "docs" / "parity.md"
PREDICATES_ONLY = "\ntiers:\n- plugins: [{name: priority}, {name: gang}, {name: predicates}]\n"


def big_gang_before_a_small_job(make: Make) -> object:
    """A gang of three of which two fit; a job of two comes after it."""
    cluster = make("allocate")
    cluster.node("n1", cpu=2)
    cluster.gang("big", 3)
    cluster.gang("small", 2)
    return cluster.run()


def gang_with_too_few_pods(make: Make) -> object:
    """A group needs three and has two pods; another could use the resources."""
    cluster = make("allocate")
    cluster.node("n1", cpu=2)
    cluster.gang("few", 2, least=3)
    cluster.gang("other", 1)
    return cluster.run()


def pod_of_two_millis(make: Make) -> object:
    """A node without an idle milli-CPU, and a pod that requests two."""
    cluster = make("allocate, backfill")
    cluster.node("n1", cpu=1)
    cluster.gang("all", 1, node="n1")
    cluster.gang("tiny", 1, "2m")
    return cluster.run()


def init_container_only(make: Make) -> object:
    """A pod with a CPU request in its init container only."""
    cluster = make("allocate, backfill")
    cluster.node("n1", cpu=1)
    cluster.group("g", 1)
    cluster.pod("p", "g", None, init_cpu="1")
    return cluster.run()


def smaller_pod_behind_one_that_fits_nowhere(make: Make) -> object:
    """The first pod of a job is too large for any node, the second is not."""
    cluster = make("allocate")
    cluster.node("n1", cpu=1)
    cluster.group("g", 1)
    cluster.pod("large", "g", "3", priority=2)
    cluster.pod("small", "g", "1", priority=1)
    return cluster.run()


def equal_priority(make: Make) -> object:
    """A job waits while one of the same priority runs."""
    cluster = make("preempt")
    cluster.node("n1", cpu=1)
    cluster.gang("old", 1, node="n1")
    cluster.gang("new", 1)
    return cluster.run()


def gang_at_its_minimum(make: Make) -> object:
    """Of a gang of four that needs three, two would have to be evicted."""
    cluster = make("preempt")
    cluster.priority("high", 10)
    cluster.node("n1", cpu=4)
    cluster.gang("old", 4, least=3, node="n1")
    cluster.gang("new", 1, "2", priority="high")
    return cluster.run()


def free_room_beside_a_victim(make: Make) -> object:
    """Two CPUs are requested, one is idle, and each victim has one."""
    cluster = make("preempt")
    cluster.priority("high", 10)
    cluster.node("n1", cpu=5)
    cluster.gang("old", 4, least=0, node="n1")
    cluster.gang("new", 1, "2", priority="high")
    return cluster.run()


def victims_that_do_not_help(make: Make) -> object:
    """All victims together have less than requested."""
    cluster = make("reclaim")
    cluster.queue("q1")
    cluster.queue("q2")
    cluster.node("n1", cpu=3)
    cluster.gang("old", 2, least=0, queue="q1", node="n1")
    cluster.gang("new", 1, "4", queue="q2")
    return cluster.run()


def queue_at_what_it_deserves(make: Make) -> object:
    """Two queues that request CPU only; the first has its half and no more."""
    cluster = make("reclaim")
    cluster.queue("q1")
    cluster.queue("q2")
    cluster.node("n1", cpu=4)
    cluster.gang("old", 2, least=0, queue="q1", node="n1")
    cluster.gang("also", 2, least=0, queue="q2", node="n1")
    cluster.gang("new", 1, queue="q2")
    return cluster.run()


def several_pods_of_a_job_reclaim(make: Make) -> object:
    """A job with two pods deserves two CPUs."""
    cluster = make("reclaim")
    cluster.queue("q1")
    cluster.queue("q2")
    cluster.node("n1", cpu=4)
    cluster.gang("old", 4, least=0, queue="q1", node="n1")
    cluster.gang("new", 2, least=1, queue="q2")
    return cluster.run()


def gang_reclaims_whole_or_not(make: Make) -> object:
    """A gang of two with two CPUs per pod; only one of its pods fits."""
    cluster = make("reclaim")
    cluster.queue("q1", 3)
    cluster.queue("q2", 3)
    cluster.node("n1", cpu=2)
    cluster.node("n2", cpu=1)
    cluster.gang("old", 2, least=0, queue="q1", node="n1")
    cluster.gang("older", 1, least=0, queue="q1", node="n2")
    cluster.gang("new", 2, "1500m", queue="q2")
    return cluster.run()


def critical_pods_in_a_second_tier(make: Make) -> object:
    """proportion, in the second tier, would not let the first queue fall below its half."""
    cluster = make("reclaim")
    cluster.queue("q1")
    cluster.queue("q2")
    cluster.node("n1", cpu=4)
    cluster.gang("old", 3, least=0, queue="q1", node="n1")
    cluster.gang("new", 2, "2", queue="q2", least=1)
    return cluster.run()


def pod_of_a_job_that_has_lower_ones(make: Make) -> object:
    """A pod waits that is more important than a running one of its job."""
    cluster = make("preempt")
    cluster.node("n1", cpu=2)
    cluster.group("g", 1)
    cluster.pod("low", "g", node="n1", priority=1)
    cluster.pod("other", "g", node="n1", priority=1)
    cluster.pod("high", "g", priority=9)
    return cluster.run()


def pod_of_a_job_under_drf_alone(make: Make) -> object:
    """The same with drf in the first tier, so that it is called whatever later tiers do."""
    tiers = "\ntiers:\n- plugins: [{name: priority}, {name: drf}, {name: predicates}]\n"
    cluster = make("preempt", tiers)
    cluster.node("n1", cpu=2)
    cluster.group("g", 1)
    cluster.pod("low", "g", node="n1", priority=1)
    cluster.pod("other", "g", node="n1", priority=1)
    cluster.pod("high", "g", priority=9)
    return cluster.run()


def gang_of_more_than_half(make: Make) -> object:
    """A gang of high priority needs three of four CPUs, all of which single pods use."""
    tiers = (
        "\ntiers:\n- plugins: [{name: priority}, {name: drf}, {name: predicates}, {name: gang}]\n"
    )
    cluster = make("preempt", tiers)
    cluster.priority("high", 10)
    cluster.node("n1", cpu=4)
    for number in range(4):
        cluster.gang(f"old{number}", 1, node="n1")
    cluster.gang("new", 3, priority="high")
    return cluster.run()


def node_that_comes_back(make: Make) -> object:
    """A node is deleted with a pod on it, and recreated before the pod is removed."""
    tiers = "\ntiers:\n- plugins: [{name: gang}, {name: predicates}]\n"
    cluster = make("allocate", tiers)
    cluster.node("n1", cpu=1)
    cluster.gang("old", 1, node="n1")
    cluster.inventory.node_deleted("n1")
    cluster.node("n1", cpu=1)
    cluster.gang("new", 1)
    return cluster.run()


# Accounting.


def change_spec(cluster: BatchCluster, name: str, **changes: Any) -> None:
    """Change the spec of a pending pod."""
    pod = cluster.pods[name]
    cluster.pods[name] = replace(pod, spec=replace(pod.spec, **changes))
    cluster.inventory.pod_updated(cluster.pods[name])


def change_status(cluster: BatchCluster, name: str, phase: str) -> None:
    pod = cluster.pods[name]
    cluster.inventory.pod_updated(replace(pod, status=replace(pod.status, phase=phase)))


def change_metadata(cluster: BatchCluster, name: str, **changes: Any) -> None:
    pod = cluster.pods[name]
    cluster.inventory.pod_updated(replace(pod, metadata=replace(pod.metadata, **changes)))


def request_of_zero_gpus(make: Make) -> object:
    """A pod requests no GPU in so many words, and the node has none."""
    cluster = make("allocate")
    cluster.node("n1", cpu=1)
    cluster.gang("g", 1)
    (container,) = cluster.pods["g-0"].spec.containers
    requests = {"cpu": "1", GPU: 0}
    asked = replace(container, resources=replace(container.resources, requests=requests))
    change_spec(cluster, "g-0", containers=(asked,))
    return cluster.run()


def pod_with_overhead(make: Make) -> object:
    """A pod of one CPU needs another for its runtime class; the node has one."""
    cluster = make("allocate")
    cluster.node("n1", cpu=1)
    cluster.gang("g", 1)
    change_spec(cluster, "g-0", overhead={"cpu": "1"})
    return cluster.run()


def more_taken_than_there_is(make: Make) -> object:
    """Two CPUs are subtracted from one."""
    arithmetic = amounts if make is KubeBatchCluster else task_requests
    try:
        return arithmetic.subtract(ResourceVector(1000, 0), ResourceVector(2000, 0)).cpu
    except KubeBatchPanic:
        return "panic"


def overcommitted_node(make: Make) -> object:
    """A node has pods of four CPUs on three; a pod without requests waits."""
    cluster = make("backfill")
    cluster.node("n1", cpu=3)
    cluster.gang("old", 2, "2", node="n1")
    cluster.group("g", 1)
    cluster.pod("p", "g", None)
    return cluster.run()


def updated_node_with_a_terminating_pod(make: Make) -> object:
    """A node is updated twice while a pod of one CPU terminates on it."""
    cluster = make()
    cluster.node("n1", cpu=4)
    cluster.gang("g", 1, node="n1")
    change_metadata(cluster, "g-0", deletion_timestamp=START)
    cluster.node("n1", cpu=4)
    cluster.node("n1", cpu=4)
    return cluster.cpu("n1")[1]


# Jobs and groups.


def deleted_pod_without_a_group(make: Make) -> object:
    """A pod without a group is deleted before its session."""
    cluster = make("allocate")
    cluster.node("n1", cpu=1)
    cluster.pod("p")
    cluster.gone("p")
    return cluster.run()


def important_pod_without_a_group(make: Make) -> object:
    """A pod of a high class without a group, and a group of a lower class."""
    cluster = make("allocate")
    cluster.priority("high", 10)
    cluster.priority("low", 1)
    cluster.node("n1", cpu=1)
    cluster.gang("low", 1, priority="low")
    cluster.pod("p")
    cluster.gone("p")
    pod = cluster.pod("vip", priority=10)
    cluster.gone("vip")
    pod = replace(pod, metadata=replace(pod.metadata, name="v", uid="v"))
    spec = replace(pod.spec, priority_class_name="high")
    cluster.inventory.pod_updated(replace(pod, spec=spec))
    return [name for name in cluster.run()[0] if name != "p"]


def bound_pod_of_another_scheduler(make: Make) -> object:
    """A pod of another scheduler is bound and not yet running."""
    cluster = make()
    cluster.node("n1", cpu=4)
    cluster.group("g", 1)
    pod = cluster.pod("other", "g")
    cluster.gone("other")
    spec = replace(pod.spec, scheduler_name="default-scheduler", node_name="n1")
    cluster.inventory.pod_updated(replace(pod, spec=spec))
    return cluster.cpu("n1")[0]


def finished_group(make: Make) -> object:
    """All pods of a group have succeeded."""
    cluster = make("allocate")
    cluster.node("n1", cpu=1)
    cluster.gang("g", 1, node="n1")
    change_status(cluster, "g-0", "Succeeded")
    cluster.run()
    return cluster.phases()


def group_that_runs_at_last(make: Make) -> object:
    """A group has waited for a node and runs now."""
    cluster = make("allocate")
    cluster.gang("g", 1)
    cluster.run()
    cluster.node("n1", cpu=1)
    cluster.run()
    return cluster.conditions()


def second_session_without_a_change(make: Make) -> object:
    """Nothing has happened since the last session."""
    cluster = make("allocate")
    cluster.node("n1", cpu=1)
    cluster.gang("g", 1, node="n1")
    cluster.run()
    cluster.run()
    return cluster.phases()


def unready_job_of_a_budget(make: Make) -> object:
    """A PodDisruptionBudget needs two pods of a controller and there is no node."""
    cluster = make("allocate")
    owner = OwnerReference("apps/v1", "ReplicaSet", "web", "uid-web", controller=True)
    meta = ObjectMeta(name="b", namespace="ns", owner_references=(owner,))
    spec = PodDisruptionBudgetSpec(min_available=2)
    cluster.inventory.budget_updated(PodDisruptionBudget(metadata=meta, spec=spec))
    pod = cluster.pod("p", "g")
    cluster.gone("p")
    meta = replace(pod.metadata, annotations={}, owner_references=(owner,))
    cluster.inventory.pod_updated(replace(pod, metadata=meta))
    try:
        return cluster.run()
    except KubeBatchPanic:
        return "panic"


def driver_of(make: Make, cpu: str) -> SessionDriver:
    """A scheduler with sessions of the same implementation."""
    return SessionDriver(cpu, compat=KUBE_BATCH_0_5 if make is KubeBatchCluster else "")


def job_of_a_missing_queue(make: Make) -> object:
    """A group names a queue that does not exist."""
    driver = driver_of(make, "2")
    effects = driver.handle(*driver.gang("g", 1, queue="nowhere"))
    return [one.message for one in effects if isinstance(one, to_do.PatchStatus)]


def pod_that_fits_nowhere(make: Make) -> object:
    """A pod requests more than the only node has."""
    cluster = make("allocate")
    cluster.node("n1", cpu=1)
    cluster.gang("g", 1, "2")
    cluster.run()
    return cluster.messages()


# Allocate and backfill.


def resources_freed_for_a_gang(make: Make) -> object:
    """A victim of an important pod has gone, and a more important job arrives meanwhile."""
    driver = driver_of(make, "2")
    running = [happened.PodAdded(member(f"old-{i}", "old", on="n1")) for i in range(2)]
    driver.handle(happened.ObjectAdded(group_commands.group("old", "1", {"min": "1"})), *running)
    driver.handle(happened.ObjectAdded(group_commands.priority("high", "1", {"value": "9"})))
    asked = driver.handle(*driver.gang("vip", 1, priority="high"))
    (evicted,) = [one for one in asked if isinstance(one, to_do.Evict)]
    higher = happened.ObjectAdded(group_commands.priority("higher", "1", {"value": "99"}))
    gone = happened.PodDeleted(member(evicted.name, "old", on="n1"))
    return binds(driver.handle(gone, higher, *driver.gang("late", 1, priority="higher")))


def node_that_must_first_free_room(make: Make) -> object:
    """Of two nodes with equal scores the first has resources that are being released."""
    cluster = make("allocate", PREDICATES_ONLY)
    cluster.node("n1", cpu=1)
    cluster.node("n2", cpu=1)
    cluster.group("old", 0)
    cluster.pod("old-0", "old", node="n1", leaving=True)
    cluster.gang("g", 1)
    return cluster.run()


def important_pod_that_requests_nothing(make: Make) -> object:
    """A node takes one pod more; of two pods without requests the second is more important."""
    cluster = make("backfill")
    cluster.priority("high", 10)
    cluster.node("n1", cpu=1, pods=1)
    cluster.group("low", 1)
    cluster.pod("low-0", "low", None)
    cluster.group("high", 1, priority="high")
    cluster.pod("high-0", "high", None)
    return cluster.run()


# Victims.


def job_of_a_later_queue(make: Make) -> object:
    """A pod could take the place of one of a lesser job, or of one of its own job."""
    cluster = make("preempt", PREDICATES_ONLY)
    cluster.priority("high", 10)
    cluster.queue("q1")
    cluster.queue("q2")
    cluster.node("n1", cpu=3)
    cluster.gang("first", 1, queue="q1", node="n1")
    cluster.gang("theirs", 1, queue="q2", node="n1")
    cluster.group("mine", 1, queue="q2", priority="high")
    cluster.pod("mine-low", "mine", node="n1", priority=1)
    cluster.pod("mine-high", "mine", priority=9)
    return cluster.run()


def eviction_that_is_undone(make: Make) -> object:
    """A gang of two finds one victim, which is not enough."""
    cluster = make("preempt", PREDICATES_ONLY)
    cluster.priority("high", 10)
    cluster.node("n1", cpu=1)
    cluster.gang("old", 1, node="n1")
    cluster.gang("new", 2, priority="high")
    return cluster.run(), cluster.releasing_in_session("n1")


# Shares, order and rules.


def queue_with_a_capability(make: Make) -> object:
    """The owner of a queue has limited it to two CPUs."""
    cluster = make("allocate")
    cluster.queue("q", capability={"cpu": "2"})
    cluster.node("n1", cpu=8)
    cluster.gang("g", 4, least=1, queue="q")
    return len(cluster.run()[0])


def weight_of_node_affinity(make: Make) -> object:
    """A pod prefers a node that is nearly full, and node affinity weighs a hundred times."""
    tiers = """
tiers:
- plugins: [{name: predicates}, {name: nodeorder, arguments: {nodeaffinity.weight: "100"}}]
"""
    cluster = make("allocate", tiers)
    cluster.node("n1", cpu=8)
    cluster.node("n2", cpu=8)
    cluster.gang("old", 1, "7", node="n2", memory="1Gi")
    cluster.gang("g", 1, memory="1Gi")
    here = NodeSelectorRequirement("kubernetes.io/hostname", "In", ("n2",))
    term = PreferredSchedulingTerm(1, NodeSelectorTerm(match_expressions=(here,)))
    change_spec(cluster, "g-0", affinity=Affinity(node_affinity=NodeAffinity(preferred=(term,))))
    return cluster.run()[0]


def pod_with_a_scheduling_gate(make: Make) -> object:
    """Scheduling gates came after Kubernetes 1.13."""
    cluster = make("allocate")
    cluster.node("n1", cpu=1)
    cluster.gang("g", 1)
    change_spec(cluster, "g-0", scheduling_gates=(PodSchedulingGate("quota"),))
    return cluster.run()


def misspelt_plugin(make: Make) -> object:
    """A configuration names the plugin `gan`."""
    text = "actions: allocate\ntiers:\n- plugins: [{name: gan}]\n"
    try:
        read = batch_configuration(text, "conf", lenient=make is KubeBatchCluster)
    except ConfigError:
        return "refused"
    assert read.tiers is not None
    return [plugin.name for tier in read.tiers for plugin in tier]


NOTHING: tuple[dict[str, str], list[str]] = ({}, [])

DIFFERENCES = [
    # Accounting.
    (pod_of_two_millis, NOTHING, ({"tiny-0": "n1"}, [])),
    (request_of_zero_gpus, ({"g-0": "n1"}, []), NOTHING),
    (pod_with_overhead, NOTHING, ({"g-0": "n1"}, [])),
    (more_taken_than_there_is, -1000.0, "panic"),
    (overcommitted_node, ({"p": "n1"}, []), NOTHING),
    (updated_node_with_a_terminating_pod, 1000.0, 3000.0),
    (node_that_comes_back, NOTHING, ({"new-0": "n1"}, [])),
    # Jobs and groups.
    (gang_with_too_few_pods, ({"other-0": "n1"}, []), NOTHING),
    (deleted_pod_without_a_group, NOTHING, ({"p": "n1"}, [])),
    (important_pod_without_a_group, ["v"], ["low-0"]),
    (bound_pod_of_another_scheduler, 3000.0, 4000.0),
    (finished_group, {"g": "Completed"}, {"g": "Pending"}),
    (group_that_runs_at_last, ["False"], ["True"]),
    (second_session_without_a_change, {}, {"g": "Running"}),
    (unready_job_of_a_budget, NOTHING, "panic"),
    (job_of_a_missing_queue, ['queues "nowhere" not found'], []),
    (
        pod_that_fits_nowhere,
        ["0/1 nodes are available: 1 Insufficient cpu."],
        ["0 nodes are available"],
    ),
    # Allocate and backfill.
    (big_gang_before_a_small_job, ({"small-0": "n1", "small-1": "n1"}, []), NOTHING),
    (smaller_pod_behind_one_that_fits_nowhere, ({"small": "n1"}, []), NOTHING),
    (resources_freed_for_a_gang, {"vip-0": "n1"}, {"late-0": "n1"}),
    (node_that_must_first_free_room, ({"g-0": "n2"}, []), NOTHING),
    (init_container_only, ({"p": "n1"}, []), NOTHING),
    (important_pod_that_requests_nothing, ({"high-0": "n1"}, []), ({"low-0": "n1"}, [])),
    # Victims.
    (critical_pods_in_a_second_tier, ({}, ["old-2"]), ({}, ["old-0", "old-1"])),
    (pod_of_a_job_under_drf_alone, ({}, ["other"]), NOTHING),
    (gang_of_more_than_half, ({}, ["old3-0", "old2-0", "old1-0"]), NOTHING),
    (gang_at_its_minimum, NOTHING, ({}, ["old-3", "old-2"])),
    (victims_that_do_not_help, NOTHING, ({}, ["old-0", "old-1"])),
    (free_room_beside_a_victim, ({}, ["old-3"]), ({}, ["old-3", "old-2"])),
    (equal_priority, NOTHING, ({}, ["old-0"])),
    (pod_of_a_job_that_has_lower_ones, ({}, ["other"]), NOTHING),
    (job_of_a_later_queue, ({}, ["theirs-0"]), ({}, ["mine-low"])),
    (eviction_that_is_undone, (NOTHING, 0.0), (NOTHING, 1000.0)),
    (several_pods_of_a_job_reclaim, ({}, ["old-3", "old-2"]), ({}, ["old-0"])),
    (gang_reclaims_whole_or_not, NOTHING, ({}, ["old-0", "old-1"])),
    # Shares, order and rules.
    (queue_at_what_it_deserves, NOTHING, ({}, ["old-0"])),
    (queue_with_a_capability, 2, 4),
    (weight_of_node_affinity, {"g-0": "n2"}, {"g-0": "n1"}),
    (pod_with_a_scheduling_gate, NOTHING, ({"g-0": "n1"}, [])),
    (misspelt_plugin, "refused", ["gan"]),
]


@pytest.mark.parametrize(
    ("scene", "today", "original"),
    [pytest.param(*one, id=one[0].__name__) for one in DIFFERENCES],
)
def test_a_difference(scene: Callable[[Make], object], today: object, original: object) -> None:
    assert scene(BatchCluster) == today
    assert scene(KubeBatchCluster) == original


def test_every_difference_is_documented() -> None:
    """docs/parity.md has a row per case, in this order."""
    cells = [line.strip("|").split("|") for line in PARITY.read_text().splitlines()]
    rows = [row[2].strip().strip("`") for row in cells if len(row) == 3]
    assert [row for row in rows if row in {one.__name__ for one, _, _ in DIFFERENCES}] == [
        one.__name__ for one, _, _ in DIFFERENCES
    ]
