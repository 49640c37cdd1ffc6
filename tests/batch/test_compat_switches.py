"""Compat switches: each defect of the original by a small scenario, off and on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stowplan.batch import KUBE_BATCH_0_5, Compat
from tests.batch.batch_cluster import BatchCluster

Seen = tuple[dict[str, str], list[str]]


def big_gang_before_a_small_job(compat: Compat) -> Seen:
    """A gang of three of which two fit; a job of two comes after it."""
    cluster = BatchCluster("allocate", compat)
    cluster.node("n1", cpu=2)
    cluster.gang("big", 3)
    cluster.gang("small", 2)
    return cluster.run()


def gang_with_too_few_pods(compat: Compat) -> Seen:
    """A group needs three and has two pods; another could use the resources."""
    cluster = BatchCluster("allocate", compat)
    cluster.node("n1", cpu=2)
    cluster.gang("few", 2, least=3)
    cluster.gang("other", 1)
    return cluster.run()


def pod_of_two_millis(compat: Compat) -> Seen:
    """A node without an idle milli-CPU, and a pod that requests two."""
    cluster = BatchCluster("allocate, backfill", compat)
    cluster.node("n1", cpu=1)
    cluster.gang("all", 1, node="n1")
    cluster.gang("tiny", 1, "2m")
    return cluster.run()


def init_container_only(compat: Compat) -> Seen:
    """A pod with a CPU request in its init container only."""
    cluster = BatchCluster("allocate, backfill", compat)
    cluster.node("n1", cpu=1)
    cluster.group("g", 1)
    cluster.pod("p", "g", None, init_cpu="1")
    return cluster.run()


def smaller_pod_behind_one_that_fits_nowhere(compat: Compat) -> Seen:
    """The first pod of a job is too large for any node, the second is not."""
    cluster = BatchCluster("allocate", compat)
    cluster.node("n1", cpu=1)
    cluster.group("g", 1)
    cluster.pod("large", "g", "3", priority=2)
    cluster.pod("small", "g", "1", priority=1)
    return cluster.run()


def equal_priority(compat: Compat) -> Seen:
    """A job waits while one of the same priority runs."""
    cluster = BatchCluster("preempt", compat)
    cluster.node("n1", cpu=1)
    cluster.gang("old", 1, node="n1")
    cluster.gang("new", 1)
    return cluster.run()


def gang_at_its_minimum(compat: Compat) -> Seen:
    """Of a gang of four that needs three, two would have to be evicted."""
    cluster = BatchCluster("preempt", compat)
    cluster.priority("high", 10)
    cluster.node("n1", cpu=4)
    cluster.gang("old", 4, least=3, node="n1")
    cluster.gang("new", 1, "2", priority="high")
    return cluster.run()


def free_room_beside_a_victim(compat: Compat) -> Seen:
    """Two CPUs are requested, one is idle, and each victim has one."""
    cluster = BatchCluster("preempt", compat)
    cluster.priority("high", 10)
    cluster.node("n1", cpu=5)
    cluster.gang("old", 4, least=0, node="n1")
    cluster.gang("new", 1, "2", priority="high")
    return cluster.run()


def victims_that_do_not_help(compat: Compat) -> Seen:
    """All victims together have less than requested."""
    cluster = BatchCluster("reclaim", compat)
    cluster.queue("q1")
    cluster.queue("q2")
    cluster.node("n1", cpu=3)
    cluster.gang("old", 2, least=0, queue="q1", node="n1")
    cluster.gang("new", 1, "4", queue="q2")
    return cluster.run()


def queue_at_what_it_deserves(compat: Compat) -> Seen:
    """Two queues that request CPU only; the first has its half and no more."""
    cluster = BatchCluster("reclaim", compat)
    cluster.queue("q1")
    cluster.queue("q2")
    cluster.node("n1", cpu=4)
    cluster.gang("old", 2, least=0, queue="q1", node="n1")
    cluster.gang("also", 2, least=0, queue="q2", node="n1")
    cluster.gang("new", 1, queue="q2")
    return cluster.run()


def several_pods_of_a_job_reclaim(compat: Compat) -> Seen:
    """A job with two pods deserves two CPUs."""
    cluster = BatchCluster("reclaim", compat)
    cluster.queue("q1")
    cluster.queue("q2")
    cluster.node("n1", cpu=4)
    cluster.gang("old", 4, least=0, queue="q1", node="n1")
    cluster.gang("new", 2, least=1, queue="q2")
    return cluster.run()


def gang_reclaims_whole_or_not(compat: Compat) -> Seen:
    """A gang of two with two CPUs per pod; only one of its pods fits."""
    cluster = BatchCluster("reclaim", compat)
    cluster.queue("q1", 3)
    cluster.queue("q2", 3)
    cluster.node("n1", cpu=2)
    cluster.node("n2", cpu=1)
    cluster.gang("old", 2, least=0, queue="q1", node="n1")
    cluster.gang("older", 1, least=0, queue="q1", node="n2")
    cluster.gang("new", 2, "1500m", queue="q2")
    return cluster.run()


def critical_pods_in_a_second_tier(compat: Compat) -> Seen:
    """proportion, in the second tier, would not let the first queue fall below its half."""
    cluster = BatchCluster("reclaim", compat)
    cluster.queue("q1")
    cluster.queue("q2")
    cluster.node("n1", cpu=4)
    cluster.gang("old", 3, least=0, queue="q1", node="n1")
    cluster.gang("new", 2, "2", queue="q2", least=1)
    return cluster.run()


def pod_of_a_job_that_has_lower_ones(compat: Compat) -> Seen:
    """A pod waits that is more important than a running one of its job."""
    cluster = BatchCluster("preempt", compat)
    cluster.node("n1", cpu=2)
    cluster.group("g", 1)
    cluster.pod("low", "g", node="n1", priority=1)
    cluster.pod("other", "g", node="n1", priority=1)
    cluster.pod("high", "g", priority=9)
    return cluster.run()


def pod_of_a_job_under_drf_alone(compat: Compat) -> Seen:
    """The same with drf in the first tier, so that it is called whatever later tiers do."""
    tiers = "\ntiers:\n- plugins: [{name: priority}, {name: drf}, {name: predicates}]\n"
    cluster = BatchCluster("preempt", compat, tiers)
    cluster.node("n1", cpu=2)
    cluster.group("g", 1)
    cluster.pod("low", "g", node="n1", priority=1)
    cluster.pod("other", "g", node="n1", priority=1)
    cluster.pod("high", "g", priority=9)
    return cluster.run()


def gang_of_more_than_half(compat: Compat) -> Seen:
    """A gang of high priority needs three of four CPUs, all of which single pods use."""
    tiers = (
        "\ntiers:\n- plugins: [{name: priority}, {name: drf}, {name: predicates}, {name: gang}]\n"
    )
    cluster = BatchCluster("preempt", compat, tiers)
    cluster.priority("high", 10)
    cluster.node("n1", cpu=4)
    for number in range(4):
        cluster.gang(f"old{number}", 1, node="n1")
    cluster.gang("new", 3, priority="high")
    return cluster.run()


def node_that_comes_back(compat: Compat) -> Seen:
    """A node is deleted with a pod on it, and recreated before the pod is removed."""
    tiers = "\ntiers:\n- plugins: [{name: gang}, {name: predicates}]\n"
    cluster = BatchCluster("allocate", compat, tiers)
    cluster.node("n1", cpu=1)
    cluster.gang("old", 1, node="n1")
    cluster.inventory.node_deleted("n1")
    cluster.node("n1", cpu=1)
    cluster.gang("new", 1)
    return cluster.run()


@pytest.mark.parametrize(
    ("scene", "fixed", "as_v0_5"),
    [
        (big_gang_before_a_small_job, ({"small-0": "n1", "small-1": "n1"}, []), ({}, [])),
        (gang_with_too_few_pods, ({"other-0": "n1"}, []), ({}, [])),
        (pod_of_two_millis, ({}, []), ({"tiny-0": "n1"}, [])),
        (init_container_only, ({"p": "n1"}, []), ({}, [])),
        (smaller_pod_behind_one_that_fits_nowhere, ({"small": "n1"}, []), ({}, [])),
        (equal_priority, ({}, []), ({}, ["old-0"])),
        (gang_at_its_minimum, ({}, []), ({}, ["old-3", "old-2"])),
        (free_room_beside_a_victim, ({}, ["old-3"]), ({}, ["old-3", "old-2"])),
        (victims_that_do_not_help, ({}, []), ({}, ["old-0", "old-1"])),
        (queue_at_what_it_deserves, ({}, []), ({}, ["old-0"])),
        (several_pods_of_a_job_reclaim, ({}, ["old-3", "old-2"]), ({}, ["old-0"])),
        (gang_reclaims_whole_or_not, ({}, []), ({}, ["old-0", "old-1"])),
        (pod_of_a_job_that_has_lower_ones, ({}, ["other"]), ({}, [])),
        (pod_of_a_job_under_drf_alone, ({}, ["other"]), ({}, [])),
        (node_that_comes_back, ({}, []), ({"new-0": "n1"}, [])),
        (critical_pods_in_a_second_tier, ({}, ["old-2"]), ({}, ["old-0", "old-1"])),
    ],
)
def test_each_compat_switch_restores_its_defect(
    scene: Callable[[Compat], Seen], fixed: Seen, as_v0_5: Seen
) -> None:
    assert scene(Compat()) == fixed
    assert scene(KUBE_BATCH_0_5) == as_v0_5


def seen_with(scene: Callable[[Compat], Seen], **switches: bool) -> Seen:
    return scene(Compat(**switches))


def test_tasks_without_victims_in_other_jobs_are_tried_within_their_own() -> None:
    scene = pod_of_a_job_that_has_lower_ones
    assert seen_with(scene) == ({}, ["other"])
    assert seen_with(scene, tried_tasks_are_spent=True) == ({}, [])


def test_drf_allows_victims_of_the_same_job() -> None:
    scene = pod_of_a_job_under_drf_alone
    assert seen_with(scene) == ({}, ["other"])
    assert seen_with(scene, drf_spares_own_job=True) == ({}, [])


def test_drf_does_not_protect_less_important_pods_from_a_gang() -> None:
    scene = gang_of_more_than_half
    assert seen_with(scene) == ({}, ["old3-0", "old2-0", "old1-0"])
    assert seen_with(scene, drf_over_priority=True) == ({}, [])


def test_pods_of_a_recreated_node_still_count() -> None:
    assert seen_with(node_that_comes_back) == ({}, [])
    assert seen_with(node_that_comes_back, gone_nodes_are_empty=True) == ({"new-0": "n1"}, [])
