"""Deserved shares decide which queue releases and which reclaims, even if other resources
abound."""

from __future__ import annotations

import pytest

from stowplan.batch.session_plugins.proportion import ProportionPlugin
from tests.batch.batch_cluster import BatchCluster


def gpus_of_one_queue(n_gpus: int = 8, n_held: int = 8) -> BatchCluster:
    """A queue runs on all cards, and both have more CPU and memory than they could use."""
    cluster = BatchCluster("reclaim")
    cluster.node("n1", cpu=64, gpus=n_gpus)
    cluster.queue("a")
    cluster.queue("b")
    cluster.gang("old", n_held, least=1, queue="a", node="n1", gpus=1)
    return cluster


def test_cards_are_reclaimed_although_nothing_else_is_scarce() -> None:
    cluster = gpus_of_one_queue()
    cluster.gang("new", 8, least=1, queue="b", gpus=1)
    assert cluster.run()[1] == ["old-7", "old-6", "old-5", "old-4"]


def test_no_cards_are_reclaimed_while_there_are_enough() -> None:
    cluster = gpus_of_one_queue(8, n_held=4)
    cluster.gang("new", 4, least=1, queue="b", gpus=1)
    assert cluster.run()[1] == []


def test_a_queue_that_needs_abundant_resources_reclaims_no_scarce_cards() -> None:
    """A pod that needs no card reclaims none from a queue with too many."""
    cluster = gpus_of_one_queue()
    cluster.gang("more", 4, least=1, queue="a", gpus=1)
    cluster.gang("waits", 1, least=1, queue="b", cpu="57", gpus=0)
    assert cluster.run()[1] == []


def three_with_one_that_wants_all() -> BatchCluster:
    """Two queues use what a third deserves and cannot use, and both would like more."""
    cluster = BatchCluster("reclaim")
    cluster.node("n1", cpu=64, gpus=9)
    for name in ("a", "b", "c"):
        cluster.queue(name)
    cluster.gang("a", 5, least=1, queue="a", node="n1", gpus=1)
    cluster.gang("b", 4, least=1, queue="b", node="n1", gpus=1)
    cluster.gang("c", 1, least=1, queue="c", gpus=9)
    cluster.gang("more-a", 3, least=1, queue="a", gpus=1)
    cluster.gang("more-b", 3, least=1, queue="b", gpus=1)
    return cluster


def test_a_queue_with_its_deserved_cards_reclaims_none() -> None:
    assert three_with_one_that_wants_all().run()[1] == []


def test_control_ignoring_the_allocation_reclaims_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProportionPlugin, "_has_its_part", lambda *given: False)
    assert three_with_one_that_wants_all().run()[1]


# Gangs larger than the whole cluster.


def beside_a_gang_of(least: int, size: int = 6, gang_cpu: str = "1") -> BatchCluster:
    """4 CPU, a gang in one queue, and 4 pods of 1 CPU in another of the same weight."""
    cluster = BatchCluster()
    cluster.node("n1", cpu=3)
    cluster.node("n2", cpu=1)
    cluster.queue("a")
    cluster.queue("b")
    cluster.gang("gang", size, gang_cpu, least=least, queue="a")
    cluster.gang("b", 4, least=1, queue="b")
    return cluster


def test_a_gang_larger_than_the_cluster_holds_nothing_back() -> None:
    cluster = beside_a_gang_of(6)
    assert sorted(cluster.run()[0]) == ["b-0", "b-1", "b-2", "b-3"]
    assert why(cluster, "gang-0") == "0/2 nodes are available: 2 Insufficient cpu."


def test_control_a_gang_larger_than_the_cluster_that_counts_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stowplan.batch.session_plugins.proportion.can_start", lambda *given: True)
    assert len(beside_a_gang_of(6).run()[0]) == 2


def test_a_gang_that_fits_the_empty_cluster_has_its_share() -> None:
    """Pods beyond its minimum do not make a gang unstartable."""
    assert sorted(beside_a_gang_of(4).run()[0]) == ["gang-0", "gang-1", "gang-2", "gang-3"]
    assert sorted(beside_a_gang_of(2).run()[0]) == ["b-0", "b-1", "gang-0", "gang-1"]


def test_a_gang_completed_by_its_smallest_pods_has_its_share() -> None:
    cluster = beside_a_gang_of(2, size=2, gang_cpu="3")
    assert sorted(cluster.run()[0]) == ["b-0", "b-1", "b-2", "b-3"]
    cluster = beside_a_gang_of(2, size=2, gang_cpu="3")
    cluster.pod("gang-small", "gang", "1")
    assert sorted(cluster.run()[0]) == ["gang-0", "gang-small"]


def test_the_allocation_of_an_unstartable_gang_counts_for_its_queue() -> None:
    """Two pods of six are left: nobody reclaims them, and nothing is held for the other four."""
    cluster = BatchCluster()
    cluster.node("n1", cpu=4)
    cluster.queue("a", weight=3)
    cluster.queue("b")
    cluster.group("gang", 6, queue="a")
    for number in range(6):
        cluster.pod(f"gang-{number}", "gang", node="n1" if number < 2 else "")
    cluster.gang("b", 4, least=1, queue="b")
    bound, evicted = cluster.run()
    assert (sorted(bound), evicted) == (["b-0", "b-1"], [])


def test_pods_on_a_node_that_is_not_ready_do_not_count_against_the_rest() -> None:
    """Four of six run on a node that is not ready, and the two others fit the rest."""
    cluster = BatchCluster()
    cluster.node("away", cpu=4, ready="False")
    cluster.node("n1", cpu=4)
    cluster.queue("a")
    cluster.queue("b")
    cluster.group("gang", 6, queue="a")
    for number in range(6):
        cluster.pod(f"gang-{number}", "gang", node="away" if number < 4 else "")
    cluster.gang("b", 4, least=1, queue="b")
    cluster.run()
    assert cluster.session is not None
    proportion = cluster.session.plugins["proportion"]
    assert isinstance(proportion, ProportionPlugin)
    assert proportion.shares["a"].unstartable.cpu == 0


def test_the_remainder_goes_to_the_queue_of_an_unstartable_gang() -> None:
    """It has its turn, and its fit errors are the same as without other queues."""
    cluster = BatchCluster()
    cluster.node("n1", cpu=4)
    cluster.queue("a")
    cluster.queue("b")
    cluster.gang("gang", 6, queue="a")
    cluster.gang("b", 1, queue="b")
    assert sorted(cluster.run()[0]) == ["b-0"]
    assert cluster.session is not None
    proportion = cluster.session.plugins["proportion"]
    assert isinstance(proportion, ProportionPlugin)
    assert proportion.shares["a"].deserved.cpu == 3000
    assert why(cluster, "gang-0") == "0/1 nodes are available: 1 Insufficient cpu."


# Messages for pods whose job had no turn.


def why(cluster: BatchCluster, pod: str) -> str:
    """Message of a pod."""
    return next(note.message for note in cluster.notes if note.key == f"ns/{pod}")


def test_a_job_that_would_fit_is_reported_as_overused() -> None:
    cluster = BatchCluster("allocate")
    cluster.node("n1", cpu=4)
    cluster.node("n2", cpu=4)
    cluster.queue("a")
    cluster.queue("b")
    cluster.gang("old", 4, least=1, queue="a", node="n1")
    cluster.gang("more", 1, queue="a")
    cluster.gang("whole", 1, queue="b", cpu="5")
    cluster.run()
    assert why(cluster, "more-0") == "queue 'a' already has its deserved share"


def test_a_job_that_fits_nowhere_is_reported_with_fit_errors_even_if_its_queue_is_overused() -> (
    None
):
    """A single queue has all it deserves when the cluster is full; that is not reported."""
    cluster = BatchCluster("allocate")
    cluster.node("n1", cpu=2)
    cluster.gang("old", 2, node="n1")
    cluster.gang("new", 1)
    cluster.run()
    assert why(cluster, "new-0") == "0/1 nodes are available: 1 Insufficient cpu."


@pytest.mark.parametrize("weight", [0, -1])
def test_a_queue_without_weight_deserves_nothing_and_is_reported(weight: int) -> None:
    cluster = BatchCluster("allocate")
    cluster.node("n1", cpu=2)
    cluster.queue("a", weight)
    cluster.gang("new", 1, queue="a")
    assert cluster.run()[0] == {}
    assert why(cluster, "new-0") == f"queue 'a' has weight {weight}, so it deserves nothing"


def test_pods_without_requests_are_not_reported_as_overused() -> None:
    cluster = BatchCluster("allocate")
    cluster.node("n1", cpu=2)
    cluster.group("g", 1)
    cluster.pod("p", "g", None)
    cluster.run()
    assert why(cluster, "p") == "0 nodes are available"


# Queues as in Volcano.


def test_a_queue_that_is_not_reclaimable_is_not_reclaimed() -> None:
    cluster = gpus_of_one_queue()
    cluster.queue("a", reclaimable=False)
    cluster.gang("new", 8, least=1, queue="b", gpus=1)
    assert cluster.run()[1] == []
    cluster.queue("a", reclaimable=True)
    assert len(cluster.run()[1]) == 4


@pytest.mark.parametrize("state", ["Closed", "Closing"])
def test_a_closed_queue_finishes_its_jobs_and_starts_none(state: str) -> None:
    cluster = BatchCluster("allocate")
    cluster.node("n1", cpu=4)
    cluster.queue("a", state=state)
    cluster.gang("begun", 1, least=1, queue="a", node="n1")
    cluster.pod("begun-more", "begun")
    cluster.gang("new", 1, queue="a")
    assert cluster.run()[0] == {"begun-more": "n1"}
    (condition,) = (c for w in cluster.writes for c in w.status.conditions if w.group.name == "new")
    assert (condition.reason, condition.message) == (
        "QueueClosed",
        f"queue 'a' is {state} and accepts no new jobs",
    )
    cluster.queue("a", state="Open")
    assert cluster.run()[0]["new-0"] == "n1"


# Nodes that are not ready.


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_that_is_not_ready_takes_no_pods_and_offers_no_resources(ready: str) -> None:
    cluster = BatchCluster()
    cluster.priority("high", 9)
    cluster.node("n1", cpu=2, ready=ready)
    cluster.gang("old", 1, node="n1")
    cluster.gang("new", 1)
    cluster.gang("vip", 2, priority="high")
    assert cluster.run() == ({}, [])
    assert cluster.session is not None
    assert cluster.session.state.nodes.total().cpu == 0
    assert why(cluster, "new-0") == "0/1 nodes are available: 1 node(s) were not ready."
    cluster.node("n1", cpu=2)
    assert cluster.run() == ({"new-0": "n1"}, [])


def test_a_node_without_a_ready_condition_is_ready() -> None:
    cluster = BatchCluster("allocate")
    cluster.node("n1", cpu=1, ready="")
    cluster.gang("new", 1)
    assert cluster.run()[0] == {"new-0": "n1"}


def test_cordoned_nodes_count_for_shares_as_in_kube_batch() -> None:
    """Half of the cluster is cordoned: each queue deserves half of the whole all the same."""
    cluster = BatchCluster("allocate")
    cluster.queue("a")
    cluster.queue("b")
    cluster.node("n1", cpu=4)
    cluster.node("n2", cpu=4, cordoned=True)
    cluster.gang("a", 8, least=1, queue="a")
    cluster.gang("b", 8, least=1, queue="b")
    bound, _ = cluster.run()
    assert cluster.session is not None
    proportion = cluster.session.plugins["proportion"]
    assert isinstance(proportion, ProportionPlugin)
    assert {name: held.deserved.cpu for name, held in proportion.shares.items()} == {
        "a": 4000,
        "b": 4000,
    }
    assert set(bound.values()) == {"n1"}
