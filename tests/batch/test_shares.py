"""What queues deserve decides who gives and who takes, where there is plenty of all else too."""

from __future__ import annotations

import pytest

from stowplan.batch.session_plugins.proportion import ProportionPlugin
from tests.batch.worlds import BatchWorld


def gpus_of_one_queue(n_gpus: int = 8, n_held: int = 8) -> BatchWorld:
    """A queue runs on all cards, and both have more CPU and memory than they could use."""
    world = BatchWorld("reclaim")
    world.node("n1", cpu=64, gpus=n_gpus)
    world.queue("a")
    world.queue("b")
    world.gang("old", n_held, least=1, queue="a", node="n1", gpus=1)
    return world


def test_cards_are_given_back_though_nothing_else_is_scarce() -> None:
    world = gpus_of_one_queue()
    world.gang("new", 8, least=1, queue="b", gpus=1)
    assert world.run()[1] == ["old-7", "old-6", "old-5", "old-4"]


def test_nobody_gives_cards_while_there_are_enough_for_all() -> None:
    world = gpus_of_one_queue(8, n_held=4)
    world.gang("new", 4, least=1, queue="b", gpus=1)
    assert world.run()[1] == []


def test_a_queue_that_wants_plenty_takes_nobody_from_scarce_cards() -> None:
    """What wants no card does not end what has too many: that is for somebody who wants one."""
    world = gpus_of_one_queue()
    world.gang("more", 4, least=1, queue="a", gpus=1)
    world.gang("waits", 1, least=1, queue="b", cpu="57", gpus=0)
    assert world.run()[1] == []


def three_with_one_that_wants_all() -> BatchWorld:
    """Two queues use what a third deserves and cannot use, and both would like to have more."""
    world = BatchWorld("reclaim")
    world.node("n1", cpu=64, gpus=9)
    for name in ("a", "b", "c"):
        world.queue(name)
    world.gang("a", 5, least=1, queue="a", node="n1", gpus=1)
    world.gang("b", 4, least=1, queue="b", node="n1", gpus=1)
    world.gang("c", 1, least=1, queue="c", gpus=9)
    world.gang("more-a", 3, least=1, queue="a", gpus=1)
    world.gang("more-b", 3, least=1, queue="b", gpus=1)
    return world


def test_a_queue_with_all_its_cards_takes_none_from_another_that_has_more() -> None:
    assert three_with_one_that_wants_all().run()[1] == []


def test_wrong_a_queue_that_is_not_asked_what_it_has_takes_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProportionPlugin, "_has_its_part", lambda *given: False)
    assert three_with_one_that_wants_all().run()[1]


# Gangs that are more than the whole cluster.


def beside_a_gang_of(least: int, size: int = 6, gang_cpu: str = "1") -> BatchWorld:
    """4 CPU, a gang in one queue, and 4 pods of 1 CPU in another of the same weight."""
    world = BatchWorld()
    world.node("n1", cpu=3)
    world.node("n2", cpu=1)
    world.queue("a")
    world.queue("b")
    world.gang("gang", size, gang_cpu, least=least, queue="a")
    world.gang("b", 4, least=1, queue="b")
    return world


def test_a_gang_that_is_more_than_the_cluster_keeps_nothing_from_another_queue() -> None:
    world = beside_a_gang_of(6)
    assert sorted(world.run()[0]) == ["b-0", "b-1", "b-2", "b-3"]
    assert why(world, "gang-0") == "0/2 nodes are available: 2 Insufficient cpu."


def test_wrong_a_gang_that_is_more_than_the_cluster_counts_like_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stowplan.batch.session_plugins.proportion.can_start", lambda *given: True)
    assert len(beside_a_gang_of(6).run()[0]) == 2


def test_a_gang_that_could_have_the_cluster_to_itself_has_its_part() -> None:
    """What waits beyond its minimum does not make it impossible."""
    assert sorted(beside_a_gang_of(4).run()[0]) == ["gang-0", "gang-1", "gang-2", "gang-3"]
    assert sorted(beside_a_gang_of(2).run()[0]) == ["b-0", "b-1", "gang-0", "gang-1"]


def test_a_gang_that_its_smallest_pods_complete_has_its_part() -> None:
    world = beside_a_gang_of(2, size=2, gang_cpu="3")
    assert sorted(world.run()[0]) == ["b-0", "b-1", "b-2", "b-3"]
    world = beside_a_gang_of(2, size=2, gang_cpu="3")
    world.pod("gang-small", "gang", "1")
    assert sorted(world.run()[0]) == ["gang-0", "gang-small"]


def test_what_such_a_gang_has_already_is_its_queues() -> None:
    """Two pods of six are left: nobody takes them, and nothing is kept for the other four."""
    world = BatchWorld()
    world.node("n1", cpu=4)
    world.queue("a", weight=3)
    world.queue("b")
    world.group("gang", 6, queue="a")
    for number in range(6):
        world.pod(f"gang-{number}", "gang", node="n1" if number < 2 else "")
    world.gang("b", 4, least=1, queue="b")
    bound, evicted = world.run()
    assert (sorted(bound), evicted) == (["b-0", "b-1"], [])


def test_what_runs_on_a_node_that_is_not_ready_is_not_in_the_way_of_the_rest() -> None:
    """Four of six run on a node that is away, and the two others fit what is left."""
    world = BatchWorld()
    world.node("away", cpu=4, ready="False")
    world.node("n1", cpu=4)
    world.queue("a")
    world.queue("b")
    world.group("gang", 6, queue="a")
    for number in range(6):
        world.pod(f"gang-{number}", "gang", node="away" if number < 4 else "")
    world.gang("b", 4, least=1, queue="b")
    world.run()
    assert world.session is not None
    proportion = world.session.policies["proportion"]
    assert isinstance(proportion, ProportionPlugin)
    assert proportion.shares["a"].without_effect.cpu == 0


def test_what_all_others_leave_goes_to_the_queue_of_such_a_gang() -> None:
    """It has its turn, and hears of nodes as it would alone."""
    world = BatchWorld()
    world.node("n1", cpu=4)
    world.queue("a")
    world.queue("b")
    world.gang("gang", 6, queue="a")
    world.gang("b", 1, queue="b")
    assert sorted(world.run()[0]) == ["b-0"]
    assert world.session is not None
    proportion = world.session.policies["proportion"]
    assert isinstance(proportion, ProportionPlugin)
    assert proportion.shares["a"].deserved.cpu == 3000
    assert why(world, "gang-0") == "0/1 nodes are available: 1 Insufficient cpu."


# What those are told who have no turn.


def why(world: BatchWorld, pod: str) -> str:
    """What a pod is told."""
    return next(note.message for note in world.notes if note.key == f"ns/{pod}")


def test_a_job_that_would_find_room_hears_that_its_queue_has_enough() -> None:
    world = BatchWorld("allocate")
    world.node("n1", cpu=4)
    world.node("n2", cpu=4)
    world.queue("a")
    world.queue("b")
    world.gang("old", 4, least=1, queue="a", node="n1")
    world.gang("more", 1, queue="a")
    world.gang("whole", 1, queue="b", cpu="5")
    world.run()
    assert why(world, "more-0") == "queue 'a' has all that it deserves"


def test_a_job_that_fits_nowhere_hears_of_nodes_whatever_its_queue_has() -> None:
    """A single queue has all it deserves when the cluster is full, and that is no news."""
    world = BatchWorld("allocate")
    world.node("n1", cpu=2)
    world.gang("old", 2, node="n1")
    world.gang("new", 1)
    world.run()
    assert why(world, "new-0") == "0/1 nodes are available: 1 Insufficient cpu."


@pytest.mark.parametrize("weight", [0, -1])
def test_a_queue_without_weight_deserves_nothing_and_says_so(weight: int) -> None:
    world = BatchWorld("allocate")
    world.node("n1", cpu=2)
    world.queue("a", weight)
    world.gang("new", 1, queue="a")
    assert world.run()[0] == {}
    assert why(world, "new-0") == f"queue 'a' has weight {weight}, so it deserves nothing"


def test_pods_that_ask_for_nothing_are_not_told_of_shares() -> None:
    world = BatchWorld("allocate")
    world.node("n1", cpu=2)
    world.group("g", 1)
    world.pod("p", "g", None)
    world.run()
    assert why(world, "p") == "0 nodes are available"


# Queues as Volcano has them.


def test_nothing_is_taken_back_from_a_queue_that_is_not_reclaimable() -> None:
    world = gpus_of_one_queue()
    world.queue("a", reclaimable=False)
    world.gang("new", 8, least=1, queue="b", gpus=1)
    assert world.run()[1] == []
    world.queue("a", reclaimable=True)
    assert len(world.run()[1]) == 4


@pytest.mark.parametrize("state", ["Closed", "Closing"])
def test_a_queue_that_is_closed_ends_what_it_has_begun_and_begins_nothing(state: str) -> None:
    world = BatchWorld("allocate")
    world.node("n1", cpu=4)
    world.queue("a", state=state)
    world.gang("begun", 1, least=1, queue="a", node="n1")
    world.pod("begun-more", "begun")
    world.gang("new", 1, queue="a")
    assert world.run()[0] == {"begun-more": "n1"}
    (said,) = (c for w in world.writes for c in w.status.conditions if w.group.name == "new")
    assert (said.reason, said.message) == (
        "QueueClosed",
        f"queue 'a' is {state} and takes no new jobs",
    )
    world.queue("a", state="Open")
    assert world.run()[0]["new-0"] == "n1"


# Nodes that are there and not ready.


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_that_is_not_ready_takes_nobody_and_offers_nothing(ready: str) -> None:
    world = BatchWorld()
    world.priority("high", 9)
    world.node("n1", cpu=2, ready=ready)
    world.gang("old", 1, node="n1")
    world.gang("new", 1)
    world.gang("vip", 2, priority="high")
    assert world.run() == ({}, [])
    assert world.session is not None
    assert world.session.state.nodes.total().cpu == 0
    assert why(world, "new-0") == "0/1 nodes are available: 1 node(s) were not ready."
    world.node("n1", cpu=2)
    assert world.run() == ({"new-0": "n1"}, [])


def test_a_node_that_says_nothing_of_being_ready_is() -> None:
    world = BatchWorld("allocate")
    world.node("n1", cpu=1, ready="")
    world.gang("new", 1)
    assert world.run()[0] == {"new-0": "n1"}


def test_what_is_cordoned_counts_for_shares_as_it_does_for_kube_batch() -> None:
    """Half of the cluster is cordoned: each queue deserves half of the whole all the same."""
    world = BatchWorld("allocate")
    world.queue("a")
    world.queue("b")
    world.node("n1", cpu=4)
    world.node("n2", cpu=4, cordoned=True)
    world.gang("a", 8, least=1, queue="a")
    world.gang("b", 8, least=1, queue="b")
    bound, _ = world.run()
    assert world.session is not None
    proportion = world.session.policies["proportion"]
    assert isinstance(proportion, ProportionPlugin)
    assert {name: held.deserved.cpu for name, held in proportion.shares.items()} == {
        "a": 4000,
        "b": 4000,
    }
    assert set(bound.values()) == {"n1"}
