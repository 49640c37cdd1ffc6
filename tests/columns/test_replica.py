"""Replica: equal to its source, at the cost of the rows that changed."""

import pytest

from stowplan.columns import NodeTable, Overlay, PodInfo, Replica
from stowplan.columns.images import ImageIndex
from stowplan.columns.incidence import Incidence
from stowplan.columns.nodetable import PodWatcher, table_of
from stowplan.columns.pods.podcounts import MatchingPods, PodSelection
from stowplan.objects.selectors import SelectorRequirement
from stowplan.testing import contents, differences, node, pod

N_NODES = 200


def cluster() -> NodeTable:
    return table_of(
        [node(f"n{i}", zone="abc"[i % 3], images={"nginx": "10M"}) for i in range(N_NODES)],
        [pod(f"p{i}", on=f"n{i}", cpu="1", ports=[80]) for i in range(N_NODES)],
    )


def assert_equal(replica: Replica) -> None:
    assert not differences(contents(replica.table), contents(replica.source))


def test_a_new_replica_is_equal() -> None:
    assert_equal(Replica(cluster()))


def test_a_replica_does_not_see_later_changes() -> None:
    source = cluster()
    replica = Replica(source)
    before = contents(replica.table)
    source.add_pod(pod("x", on="n1", cpu="1", resources={"example.com/new": "1"}))
    source.remove_node("n0")
    source.update_node(node("n2", taints=["gpu:NoSchedule"], labels={"new": "yes"}))
    source.refresh()
    assert contents(replica.table) == before
    assert replica.table.requested("example.com/new").tolist() == [0] * N_NODES
    taints = replica.table.taints.count_where(lambda taint: True, replica.table.all_rows)
    assert not taints.any()
    replica.follow()
    assert_equal(replica)


def test_a_replica_copies_the_touched_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    source = cluster()
    replica = Replica(source)
    copied: list[int] = []

    def counted(own: ImageIndex, other: ImageIndex, row: int) -> None:
        copied.append(row)
        copy_row(own, other, row)

    copy_row = ImageIndex.copy_row
    monkeypatch.setattr(ImageIndex, "copy_row", counted)

    def follow() -> int:
        copied.clear()
        n_copied = replica.follow()
        assert n_copied == len(copied) == len(set(copied))
        assert_equal(replica)
        return n_copied

    assert follow() == 0
    source.add_pod(pod("x", on="n7"))
    source.add_pod(pod("y", on="n7"))
    source.update_node(node("n9", cpu="8"))
    assert follow() == 2
    source.remove_node("n3")
    assert source.row(f"n{N_NODES - 1}") == 3
    assert follow() == 1
    source.remove_node(source.names[-1])
    assert follow() == 0
    source.add_node(node("new"))
    assert follow() == 1
    for name in [*source.names]:
        source.update_node(node(name))
    assert follow() == source.n_nodes


def test_a_replica_that_fell_far_behind_copies_everything() -> None:
    source = cluster()
    replica = Replica(source)
    for _ in range(2500):
        source.add_pod(pod("x", on="n0"))
        source.remove_pod("default/x")
    source.remove_node("n5")
    assert source.journal.since(0) is None
    assert replica.follow() == N_NODES - 1
    assert_equal(replica)


def test_a_pod_may_change_its_node_between_two_looks() -> None:
    source = cluster()
    replica = Replica(source)
    for first, second in (("n1", "n2"), ("n2", "n1")):
        source.remove_pod("default/x") if source.knows_pod("default/x") else None
        source.add_pod(pod("x", on=first))
        replica.follow()
        source.remove_pod("default/x")
        source.add_pod(pod("x", on=second))
        replica.follow()
        assert_equal(replica)
        assert replica.table.row_of_pod("default/x") == source.row(second)


def test_counts_that_a_refresh_changes_are_followed() -> None:
    source = cluster()
    source.update_node(node("n0", images={"nginx": "10M", "new": "1M"}))
    replica = Replica(source)
    source.update_node(node("n1", images={"nginx": "10M", "new": "1M"}))
    replica.follow()
    source.refresh()
    assert replica.follow() == 1
    assert_equal(replica)


def test_a_replica_leaves_pods_of_absent_nodes_aside() -> None:
    source = table_of([node("n1")], [pod("a", on="n2")])
    replica = Replica(source)
    assert replica.table.pod("default/a") is None
    source.add_node(node("n2"))
    replica.follow()
    assert replica.table.row_of_pod("default/a") == 1
    source.remove_node("n2")
    replica.follow()
    assert not replica.table.knows_pod("default/a")


def test_a_replica_can_be_asked_what_if() -> None:
    source = cluster()
    replica = Replica(source)
    with Overlay(replica.table) as overlay:
        overlay.take("default/p3", 3)
        overlay.place(PodInfo.of(pod("x", resources={"example.com/new": "1"})), 4)
        assert replica.table.requested("example.com/new").sum() == 1
        assert source.requested("example.com/new").sum() == 0
    assert_equal(replica)
    source.add_pod(pod("y", on="n4", resources={"example.com/other": "2"}))
    replica.follow()
    assert_equal(replica)


class Counts(PodWatcher):
    """Pods per row, by what a watcher is told alone."""

    def __init__(self) -> None:
        self.pods: list[set[str]] = []
        self.n_notified = 0

    def pod_added(self, row: int, info: PodInfo) -> None:
        assert info.uid not in self.pods[row]
        self.pods[row].add(info.uid)
        self.n_notified += 1

    def pod_removed(self, row: int, info: PodInfo) -> None:
        self.pods[row].remove(info.uid)
        self.n_notified += 1

    def row_added(self, row: int) -> None:
        assert row == len(self.pods)
        self.pods.append(set())

    def row_moved(self, source: int, target: int) -> None:
        self.pods[target] = self.pods[source]
        self.pods[source] = set()

    def row_dropped(self, row: int) -> None:
        assert not self.pods.pop()
        assert row == len(self.pods)


def test_a_watcher_of_a_replica_hears_what_changed() -> None:
    source = cluster()
    replica = Replica(source)
    counts = Counts()
    replica.table.watch(counts)

    def follow() -> int:
        counts.n_notified = 0
        replica.follow()
        assert counts.pods == [{info.uid for info in pods} for pods in source.pods]
        return counts.n_notified

    source.add_pod(pod("x", on="n1"))
    assert follow() == 1
    source.update_node(node("n1", cpu="1"))
    assert follow() == 0
    source.remove_node("n1")
    # Two pods of n1 and one of the last node, which took its row, leave; the latter comes back.
    assert follow() == 4
    source.add_node(node("n1"))
    assert follow() == 2


def test_counts_kept_beside_a_replica_follow_too() -> None:
    source = cluster()
    replica = Replica(source)
    selection = PodSelection((SelectorRequirement(key="app", operator="In", values=("web",)),))

    def counts(table: NodeTable) -> list[int]:
        return MatchingPods.of(table).counts(selection).tolist()

    assert counts(replica.table) == [0] * N_NODES
    source.add_pod(pod("x", on="n1", labels={"app": "web"}))
    source.add_pod(pod("y", on="n9", labels={"app": "web"}))
    assert sum(counts(replica.table)) == 0
    replica.follow()
    assert sum(counts(replica.table)) == 2
    source.remove_node("n1")
    source.update_pod(pod("y", on="n9", labels={"app": "db"}))
    source.add_pod(pod("z", on=source.names[1], labels={"app": "web"}))
    replica.follow()
    assert counts(replica.table) == counts(source)


def test_item_numbers_are_shared() -> None:
    source = cluster()
    replica = Replica(source)
    source.update_node(node("n1", taints=["gpu:NoSchedule"]))
    replica.follow()
    mine, theirs = replica.table.taints, source.taints
    assert isinstance(mine, Incidence)
    assert mine is not theirs
    assert mine.vocabulary is theirs.vocabulary
