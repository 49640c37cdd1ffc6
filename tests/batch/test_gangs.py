"""Group statuses at the close of a session, and sessions without decisions."""

from __future__ import annotations

from tests.batch.batch_cluster import BatchCluster


def phases(cluster: BatchCluster) -> dict[str, str]:
    return {write.group.name: write.status.phase for write in cluster.writes}


def test_a_gang_starts_when_its_last_pod_arrives() -> None:
    cluster = BatchCluster("allocate")
    cluster.node("n1", cpu=4)
    cluster.gang("g", 2, least=3)
    assert cluster.run() == ({}, [])
    (write,) = cluster.writes
    (condition,) = write.status.conditions
    assert (condition.type, condition.status) == ("Unschedulable", "True")
    assert condition.reason == "NotEnoughTasks"
    assert "valid: 2, min: 3" in condition.message
    cluster.pod("g-2", "g")
    assert cluster.run()[0] == {"g-0": "n1", "g-1": "n1", "g-2": "n1"}


def test_a_status_is_written_only_when_it_changed() -> None:
    cluster = BatchCluster("allocate")
    cluster.node("n1", cpu=1)
    cluster.gang("g", 1, "2")
    cluster.run()
    assert phases(cluster) == {"g": "Pending"}
    assert [note.message for note in cluster.notes] == [
        "0/1 nodes are available: 1 Insufficient cpu."
    ]
    cluster.run()
    assert cluster.writes == []


def test_the_condition_is_removed_when_the_group_runs() -> None:
    cluster = BatchCluster("allocate")
    cluster.gang("g", 1)
    cluster.run()
    cluster.node("n1", cpu=1)
    cluster.run()
    (write,) = cluster.writes
    assert write.status.phase == "Running"
    assert [c.status for c in write.status.conditions] == ["False"]


def test_a_session_without_decisions_changes_nothing() -> None:
    cluster = BatchCluster()
    cluster.queue("q2")
    cluster.node("n1", cpu=4)
    cluster.gang("old", 4, least=4, node="n1")
    cluster.gang("new", 3, queue="q2")

    def held() -> list[object]:
        nodes = cluster.nodes
        return [
            nodes.idle.amount(0).pairs(),
            nodes.used.amount(0).pairs(),
            nodes.releasing.amount(0).pairs(),
            {
                uid: (t.status, t.node)
                for j in cluster.inventory.jobs.values()
                for uid, t in j.tasks.items()
            },
        ]

    before = held()
    assert cluster.run() == ({}, [])
    assert held() == before


def test_pods_without_a_group_form_groups_of_one() -> None:
    cluster = BatchCluster("allocate, backfill")
    cluster.node("n1", cpu=1)
    cluster.pod("a")
    cluster.pod("b", cpu=None)
    assert cluster.run() == ({"a": "n1", "b": "n1"}, [])
    assert cluster.writes == []


def test_a_deleted_pod_without_a_group_is_forgotten() -> None:
    cluster = BatchCluster("allocate")
    cluster.pod("a")
    cluster.gone("a")
    cluster.inventory.sweep()
    assert not cluster.inventory.jobs


def test_a_queue_never_exceeds_its_capability() -> None:
    cluster = BatchCluster("allocate")
    cluster.queue("q", capability={"cpu": "2"})
    cluster.node("n1", cpu=8)
    cluster.gang("g", 4, least=1, queue="q")
    assert len(cluster.run()[0]) == 2
