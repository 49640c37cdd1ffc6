"""What the close of a session says of groups, and what stays of a session that decided nothing."""

from __future__ import annotations

from stowplan.batch import KUBE_BATCH_0_5, Compat
from tests.batch.worlds import BatchWorld


def phases(world: BatchWorld) -> dict[str, str]:
    return {write.group.name: write.status.phase for write in world.writes}


def test_a_gang_starts_whole_when_its_last_pod_comes() -> None:
    world = BatchWorld("allocate")
    world.node("n1", cpu=4)
    world.gang("g", 2, least=3)
    assert world.run() == ({}, [])
    (write,) = world.writes
    (condition,) = write.status.conditions
    assert (condition.type, condition.status) == ("Unschedulable", "True")
    assert condition.reason == "NotEnoughTasks"
    assert "valid: 2, min: 3" in condition.message
    world.pod("g-2", "g")
    assert world.run()[0] == {"g-0": "n1", "g-1": "n1", "g-2": "n1"}


def test_a_status_is_written_only_when_it_changed() -> None:
    world = BatchWorld("allocate")
    world.node("n1", cpu=1)
    world.gang("g", 1, "2")
    world.run()
    assert phases(world) == {"g": "Pending"}
    assert [note.message for note in world.notes] == [
        "0/1 nodes are available: 1 Insufficient cpu."
    ]
    world.run()
    assert world.writes == []
    original = BatchWorld("allocate", KUBE_BATCH_0_5)
    original.node("n1", cpu=1)
    original.gang("g", 1, "2")
    original.run()
    original.run()
    assert phases(original) == {"g": "Pending"}


def test_a_condition_goes_when_the_group_runs() -> None:
    for compat, status in ((Compat(), "False"), (Compat(conditions_stay=True), "True")):
        world = BatchWorld("allocate", compat)
        world.gang("g", 1)
        world.run()
        world.node("n1", cpu=1)
        world.run()
        (write,) = world.writes
        assert write.status.phase == "Running"
        assert [c.status for c in write.status.conditions] == [status]


def test_a_session_that_decides_nothing_leaves_nothing_behind() -> None:
    world = BatchWorld()
    world.queue("q2")
    world.node("n1", cpu=4)
    world.gang("old", 4, least=4, node="n1")
    world.gang("new", 3, queue="q2")
    nodes = world.inventory.nodes

    def held() -> list[object]:
        return [
            nodes.idle.amount(0).pairs(),
            nodes.used.amount(0).pairs(),
            nodes.releasing.amount(0).pairs(),
            {
                uid: (t.status, t.node)
                for j in world.inventory.jobs.values()
                for uid, t in j.tasks.items()
            },
        ]

    before = held()
    assert world.run() == ({}, [])
    assert held() == before


def test_plain_pods_are_groups_of_one() -> None:
    world = BatchWorld("allocate, backfill")
    world.node("n1", cpu=1)
    world.pod("a")
    world.pod("b", cpu=None)
    assert world.run() == ({"a": "n1", "b": "n1"}, [])
    assert world.writes == []


def test_a_pod_without_a_group_that_is_gone_is_forgotten() -> None:
    for compat, n_jobs in ((Compat(), 0), (Compat(solo_pods_linger=True), 1)):
        world = BatchWorld("allocate", compat)
        world.pod("a")
        world.gone("a")
        world.inventory.sweep()
        assert len(world.inventory.jobs) == n_jobs


def test_a_queue_has_no_more_than_its_capability() -> None:
    for compat, n_bound in ((Compat(), 2), (Compat(ignores_capability=True), 4)):
        world = BatchWorld("allocate", compat)
        world.queue("q", capability={"cpu": "2"})
        world.node("n1", cpu=8)
        world.gang("g", 4, least=1, queue="q")
        assert len(world.run()[0]) == n_bound
