"""Inventory: changes between sessions."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from stowplan.batch import StandaloneInventory
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue, QueueSpec
from stowplan.objects.workload import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PriorityClass,
)
from stowplan.testing import pod
from tests.batch.batch_cluster import START, BatchCluster


def deleted(pod: Pod) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp=START))


def test_a_node_update_counts_releasing_resources_once() -> None:
    cluster = BatchCluster()
    cluster.node("n1", cpu=4)
    cluster.gang("g", 1, node="n1")
    cluster.inventory.pod_updated(deleted(cluster.pods["g-0"]))
    cluster.node("n1", cpu=4)
    cluster.node("n1", cpu=4)
    assert cluster.nodes.releasing.amount(0).cpu == 1000


def test_a_bound_pod_of_another_scheduler_holds_resources() -> None:
    cluster = BatchCluster()
    cluster.node("n1", cpu=4)
    pod = cluster.pod("other")
    cluster.gone("other")
    spec = replace(pod.spec, scheduler_name="default-scheduler", node_name="n1")
    cluster.inventory.pod_updated(replace(pod, spec=spec))
    assert cluster.nodes.idle.amount(0).cpu == 3000
    assert not cluster.inventory.jobs["other"].tasks if "other" in cluster.inventory.jobs else True


def test_pods_may_arrive_before_their_node_and_their_group() -> None:
    cluster = BatchCluster("allocate")
    cluster.pod("g-0", "g", node="n1")
    cluster.pod("g-1", "g")
    assert cluster.run() == ({}, [])
    cluster.node("n1", cpu=2)
    cluster.group("g", 2)
    assert cluster.nodes.idle.amount(0).cpu == 1000
    assert cluster.run() == ({"g-1": "n1"}, [])


def test_a_finished_pod_releases_its_resources_and_still_counts_for_its_gang() -> None:
    cluster = BatchCluster("allocate")
    cluster.node("n1", cpu=2)
    cluster.gang("g", 2, node="n1")
    pod = cluster.pods["g-0"]
    cluster.inventory.pod_updated(replace(pod, status=replace(pod.status, phase="Succeeded")))
    job = cluster.inventory.jobs["ns/g"]
    assert cluster.nodes.idle.amount(0).cpu == 1000
    assert (job.ready_count, job.is_ready) == (2, True)
    assert job.allocated.cpu == 1000


def test_pods_of_one_controller_are_one_job() -> None:
    cluster = BatchCluster()
    for name in ("a", "b"):
        cluster.pod(name)
    assert sorted(cluster.inventory.jobs) == ["a", "b"]


def test_rows_of_deleted_nodes_are_removed() -> None:
    cluster = BatchCluster("allocate")
    for name in ("n1", "n2", "n3"):
        cluster.node(name, cpu=2)
    cluster.gang("g", 1, node="n3")
    cluster.inventory.node_deleted("n1")
    nodes = cluster.nodes
    assert nodes.names == ["n3", "n2"]
    assert [nodes.idle.amount(row).cpu for row in range(2)] == [1000, 2000]
    assert nodes.row("n3") == 0
    assert nodes.pod_count.tolist() == [1, 0]


def test_a_bound_pod_is_not_bound_again_before_the_watch_confirms_it() -> None:
    cluster = BatchCluster("allocate")
    cluster.node("n1", cpu=2)
    cluster.gang("g", 1)
    assert cluster.run()[0] == {"g-0": "n1"}
    assert cluster.run()[0] == {}
    assert TaskStatus.BINDING in cluster.inventory.jobs["ns/g"].by_status


@pytest.mark.parametrize("is_first", [True, False])
def test_pods_and_their_budget_may_arrive_in_any_order(is_first: bool) -> None:
    inventory = StandaloneInventory("kube-batch", "default")
    inventory.queue_updated(Queue(metadata=ObjectMeta(name="default"), spec=QueueSpec(weight=1)))
    inventory.priority_class_updated(PriorityClass(metadata=ObjectMeta(name="high"), value=9))
    owner = OwnerReference("apps/v1", "Crew", "crew", "uid-crew", controller=True)
    made = pod("p", cpu="1", scheduler="kube-batch")
    meta = replace(made.metadata, owner_references=(owner,))
    spec = replace(made.spec, priority_class_name="high")
    status = replace(made.status, phase="Pending")
    made = replace(made, metadata=meta, spec=spec, status=status)
    budget = PodDisruptionBudget(
        metadata=ObjectMeta(name="b", namespace="default", owner_references=(owner,)),
        spec=PodDisruptionBudgetSpec(min_available=3),
    )
    seen = [partial(inventory.budget_updated, budget), partial(inventory.pod_updated, made)]
    for see in seen if is_first else reversed(seen):
        see()
    (job,) = inventory.open().jobs.values()
    assert (job.uid, job.min_available, job.priority, job.queue) == ("uid-crew", 3, 9, "default")
    assert job.is_solo


def test_a_class_that_is_no_longer_the_default_gives_no_priority() -> None:
    inventory = StandaloneInventory("kube-batch", "default")
    inventory.queue_updated(Queue(metadata=ObjectMeta(name="default"), spec=QueueSpec(weight=1)))
    inventory.group_updated(PodGroup(metadata=ObjectMeta(name="g", namespace="default")))
    usual = PriorityClass(metadata=ObjectMeta(name="usual"), value=9, global_default=True)
    priorities = []
    for seen in (usual, replace(usual, global_default=False), usual):
        inventory.priority_class_updated(seen)
        (job,) = inventory.open().jobs.values()
        priorities.append(job.priority)
    assert priorities == [9, 0, 9]


def test_pods_of_a_controller_without_a_uid_are_one_job() -> None:
    """As in files: pods expanded from a Job name it as owner without a uid."""
    cluster = BatchCluster("allocate")
    cluster.node("n1", cpu=8)

    def owned(name: str, by: str) -> Pod:
        owner = OwnerReference(api_version="batch/v1", kind="Job", name=by, controller=True)
        made = cluster.pod(name)
        cluster.inventory.pod_deleted(made.uid)
        return replace(made, metadata=replace(made.metadata, owner_references=(owner,)))

    for name, by in (("a", "x"), ("b", "x"), ("c", "y")):
        cluster.inventory.pod_updated(owned(name, by))
    assert sorted(len(job.tasks) for job in cluster.inventory.jobs.values() if job.tasks) == [1, 2]
    assert set(cluster.run()[0]) == {"a", "b", "c"}


def test_a_queue_of_volcano_without_a_weight_has_1() -> None:
    inventory = StandaloneInventory("kube-batch")
    for version, weight in (
        ("scheduling.incubator.k8s.io/v1alpha1", 0),
        ("scheduling.sigs.dev/v1alpha2", 0),
        ("scheduling.volcano.sh/v1beta1", 1),
    ):
        inventory.queue_updated(Queue(metadata=ObjectMeta(name="q"), api_version=version))
        assert inventory.queues["q"].weight == weight


def test_a_pod_with_the_name_of_a_group_is_not_in_it() -> None:
    """In files a pod without a uid has its key as uid, which may equal the key of a PodGroup."""
    cluster = BatchCluster("allocate")
    cluster.node("n1", cpu=8)
    cluster.gang("g", 2)
    alone = cluster.pod("g")
    cluster.inventory.pod_deleted(alone.uid)
    cluster.inventory.pod_updated(replace(alone, metadata=replace(alone.metadata, uid=alone.key)))
    assert len(cluster.inventory.jobs["ns/g"].tasks) == 2
    assert set(cluster.run()[0]) == {"g", "g-0", "g-1"}
