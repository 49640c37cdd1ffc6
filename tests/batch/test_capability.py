"""A queue never exceeds its capability: by no action, allocated and pipelined tasks included."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stowplan.objects.quantity import Quantity
from tests.batch.batch_cluster import BatchCluster
from tests.scenarios.group_commands import ACTIONS

WITHOUT_PROPORTION = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
"""


def cluster_of(actions: str = ACTIONS, tiers: str = "", **capability: Quantity) -> BatchCluster:
    """A node of 32 CPUs and a queue `q` with a capability."""
    cluster = BatchCluster(actions, tiers=tiers) if tiers else BatchCluster(actions)
    cluster.node("n1", cpu=32)
    cluster.queue("q", capability=capability or {"cpu": 8})
    return cluster


@pytest.mark.parametrize("tiers", ["", WITHOUT_PROPORTION])
def test_a_queue_with_8_cpus_does_not_receive_16(tiers: str) -> None:
    """Pods that request memory too, of which the queue has less than it deserves."""
    cluster = cluster_of("allocate, backfill", tiers)
    cluster.gang("g", 16, least=1, queue="q", memory="1Gi")
    assert len(cluster.run()[0]) == 8
    cluster.gang("later", 2, queue="q", memory="1Gi")
    assert cluster.run()[0] == {}


def test_the_remainder_goes_to_other_queues() -> None:
    cluster = cluster_of()
    cluster.queue("open")
    cluster.gang("g", 16, least=1, queue="q", memory="1Gi")
    cluster.gang("h", 30, least=1, queue="open", memory="1Gi")
    bound, _ = cluster.run()
    assert sum(name.startswith("g") for name in bound) == 8
    assert sum(name.startswith("h") for name in bound) == 24


def test_a_gang_above_the_capability_is_not_placed_and_reported() -> None:
    cluster = cluster_of()
    cluster.gang("g", 3, "3", queue="q")
    assert cluster.run() == ({}, [])
    (message,) = {note.message for note in cluster.notes}
    assert (
        message
        == "queue 'q' has reached its capability: requested: cpu=3, used: cpu=6, limited: cpu=8"
    )
    (condition,) = cluster.writes[0].status.conditions
    assert condition.reason == "NotEnoughResources"
    assert message in condition.message


def test_resources_that_are_not_requested_do_not_count() -> None:
    cluster = cluster_of(**{"nvidia.com/gpu": 0, "cpu": 8})
    cluster.gang("g", 2, queue="q")
    assert len(cluster.run()[0]) == 2


def test_a_resource_with_a_capability_of_zero() -> None:
    cluster = cluster_of(**{"nvidia.com/gpu": 0})
    cluster.node("n2", cpu=8, gpus=2)
    cluster.gang("g", 1, queue="q", gpus=1)
    assert cluster.run()[0] == {}


def test_pods_without_requests_are_counted_too() -> None:
    cluster = cluster_of(pods=3)
    cluster.group("g", 1, "q")
    for number in range(4):
        cluster.pod(f"p{number}", "g", None if number % 2 else "1")
    assert len(cluster.run()[0]) == 3


def test_equal_jobs_of_another_queue_are_not_refused_with_it() -> None:
    cluster = cluster_of(cpu=1)
    cluster.queue("z")
    cluster.gang("a", 2, queue="q")
    cluster.gang("b", 2, queue="z")
    # Of one template, so that a turn of one may stand for the other.
    spec = cluster.pods["a-0"].spec
    for pod in list(cluster.pods.values()):
        cluster.inventory.pod_updated(replace(pod, spec=spec))
    assert set(cluster.run()[0]) == {"b-0", "b-1"}


def test_terminating_pods_count_until_they_are_deleted() -> None:
    cluster = cluster_of(cpu=2)
    cluster.group("old", 1, "q")
    cluster.pod("old-0", "old", "2", node="n1", leaving=True)
    cluster.gang("new", 1, "2", queue="q")
    assert cluster.run() == ({}, [])
    cluster.gone("old-0")
    assert cluster.run()[0] == {"new-0": "n1"}


def test_preempt_frees_capability_where_nodes_have_idle_resources() -> None:
    cluster = cluster_of("allocate, preempt", cpu=4)
    cluster.priority("high", 100)
    cluster.gang("low", 4, least=1, queue="q", node="n1")
    cluster.gang("high", 2, queue="q", priority="high")
    bound, evicted = cluster.run()
    assert bound == {}
    assert len(evicted) == 2
    for name in evicted:
        cluster.gone(name)
    assert set(cluster.run()[0]) == {"high-0", "high-1"}


def test_preempt_does_not_evict_for_a_gang_above_the_capability() -> None:
    cluster = cluster_of("allocate, preempt", cpu=4)
    cluster.priority("high", 100)
    cluster.gang("low", 4, least=1, queue="q", node="n1")
    cluster.gang("high", 5, queue="q", priority="high")
    assert cluster.run() == ({}, [])


def test_reclaim_does_not_evict_for_a_queue_at_its_capability() -> None:
    cluster = BatchCluster("reclaim, allocate")
    cluster.node("n1", cpu=8)
    cluster.queue("q", weight=3, capability={"cpu": 2})
    cluster.queue("other")
    cluster.gang("have", 2, least=1, queue="q", node="n1")
    cluster.gang("theirs", 6, least=1, queue="other", node="n1")
    cluster.gang("more", 2, least=1, queue="q")
    assert cluster.run() == ({}, [])


def test_pipelined_tasks_count_for_the_capability() -> None:
    """Reclaim pipelines two pods; idle resources elsewhere are not for a third."""
    cluster = BatchCluster("reclaim, allocate", tiers=WITHOUT_PROPORTION)
    cluster.node("n1", cpu=2)
    cluster.queue("q", capability={"cpu": 2})
    cluster.group("old", 1)
    for number in range(2):
        cluster.pod(f"old-{number}", "old", "1", node="n1", leaving=True)
    cluster.gang("g", 2, queue="q")
    assert cluster.run() == ({}, [])
    cluster.inventory.nominations = dict.fromkeys(("g-0", "g-1"), "n1")
    cluster.node("n2", cpu=8)
    cluster.gang("first", 1, queue="q")
    cluster.inventory.first["ns/first"] = 1
    bound, _ = cluster.run()
    assert set(bound) == {"g-0", "g-1"}
