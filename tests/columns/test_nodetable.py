"""NodeTable: rows come, change and go, and the columns with them."""

from collections.abc import Callable

import numpy as np
import pytest

from stowplan.columns import NodeTable, PodInfo
from stowplan.columns.nodetable import PodWatcher, TableError, table_of
from stowplan.objects.quantity import QuantityError
from stowplan.testing import draw, node, pod


def test_a_node_is_a_row_of_every_column() -> None:
    table = draw("""
        node  cpu   memory  pods  zone  labels    taints              cordoned  nvidia.com/gpu
        n1    4     1Gi     10    a     disk=ssd  gpu=yes:NoSchedule  yes       -
        n2    500m  2Gi     -     -     -         -                   no        2
    """).table
    assert table.allocatable("cpu").tolist() == [4000, 500]
    assert table.allocatable("memory").tolist() == [2**30, 2**31]
    assert table.pod_limit.tolist() == [10, 110]
    assert table.allocatable("nvidia.com/gpu").tolist() == [0, 2]
    assert table.unschedulable.tolist() == [True, False]
    assert table.labels.column("disk").where(lambda v: v == "ssd", slice(0, 2)).tolist() == [1, 0]
    assert table.taints.count_where(lambda t: t.key == "gpu", table.all_rows).tolist() == [1, 0]
    assert [info.name for info in table.infos()] == ["n1", "n2"]


def test_an_unnamed_resource_is_zero_everywhere() -> None:
    table = draw("node\nn1\nn2").table
    assert table.allocatable("example.com/dongle").tolist() == [0, 0]
    assert table.requested("example.com/dongle").tolist() == [0, 0]


def test_pods_add_up_on_their_node() -> None:
    table = draw("""
        node
        n1
        n2

        pod  on  cpu   memory  nvidia.com/gpu
        a    n1  100m  1Gi     -
        b    n1  1     -       2
        c    n2  -     -       -
    """).table
    assert table.requested("cpu").tolist() == [1100, 0]
    assert table.requested("memory").tolist() == [2**30, 0]
    assert table.requested("nvidia.com/gpu").tolist() == [2, 0]
    # A container that names no cpu counts as 100m, one that names no memory as 200Mi.
    assert table.nonzero_requested("cpu").tolist() == [1100, 100]
    assert table.nonzero_requested("memory").tolist() == [2**30 + 200 * 2**20, 200 * 2**20]
    assert table.pod_count.tolist() == [2, 1]


def test_a_pod_that_leaves_takes_its_share_along() -> None:
    pod_table = draw("""
        node
        n1

        pod  on  cpu
        a    n1  1
        b    n1  2
        c    n1  4
    """)
    table = pod_table.table
    table.remove_pod("default/a")
    assert table.requested("cpu").tolist() == [6000]
    # As in the original, the last pod takes the place of the one that left.
    assert [info.pod.name for info in table.pods[0]] == ["c", "b"]
    assert table.info(0).requested == {"cpu": 6000}


def test_an_updated_pod_leaves_and_comes_back() -> None:
    table = table_of([node("n1")], [pod("a", on="n1", cpu="1"), pod("b", on="n1")])
    table.update_pod(pod("a", on="n1", cpu="3"))
    assert table.requested("cpu").tolist() == [3000]
    assert [info.pod.name for info in table.pods[0]] == ["b", "a"]


def test_an_assumed_pod_counts_on_the_node_it_is_assumed_on() -> None:
    table = table_of([node("n1"), node("n2")])
    table.add_pod(pod("a", cpu="1"), "n2")
    assert table.requested("cpu").tolist() == [0, 1000]
    assert table.row_of_pod("default/a") == 1


def test_an_updated_node_keeps_its_row_and_its_pods() -> None:
    pod_table = draw("""
        node  labels    taints           nvidia.com/gpu
        n1    disk=ssd  gpu:NoSchedule  2
        n2    -         -                -

        pod  on  cpu
        a    n1  1
    """)
    table = pod_table.table
    column = table.labels.column("disk")
    assert table.update_node(node("n1", cpu="8", labels={"disk": "hdd"})) == 0
    assert table.allocatable("cpu").tolist() == [8000, 4000]
    assert table.allocatable("nvidia.com/gpu").tolist() == [0, 0]
    assert table.requested("cpu").tolist() == [1000, 0]
    assert column.where(lambda value: value == "hdd", table.all_rows).tolist() == [True, False]
    assert table.taints.count_where(lambda taint: True, table.all_rows).tolist() == [0, 0]
    assert table.info(0).labels["disk"] == "hdd"


def test_the_last_row_takes_the_place_of_one_that_leaves() -> None:
    pod_table = draw("""
        node  cpu  taints          cordoned  images     features
        n1    1    -               no        -          -
        n2    2    -               no        -          -
        n3    3    gpu:NoSchedule  yes       nginx=10M  Swap

        pod  on  cpu   ports
        a    n1  100m  80
        c    n3  300m  53/UDP
    """)
    table = pod_table.table
    table.labels.column("kubernetes.io/hostname")
    table.remove_node("n1")
    assert table.names == ["n3", "n2"]
    assert (table.row("n1"), table.row("n2"), table.row("n3")) == (-1, 1, 0)
    assert table.allocatable("cpu").tolist() == [3000, 2000]
    assert table.requested("cpu").tolist() == [300, 0]
    assert table.pod_count.tolist() == [1, 0]
    assert table.unschedulable.tolist() == [True, False]
    hosts = table.labels.column("kubernetes.io/hostname")
    assert hosts.where_in(("n3",), table.all_rows).tolist() == [True, False]
    assert table.taints.count_where(lambda taint: True, table.all_rows).tolist() == [1, 0]
    assert table.features.has_all(("Swap",), table.all_rows).tolist() == [True, False]
    assert table.images.of_row(0) == {"nginx": (10_000_000, 1)}
    assert table.ports.of_row(0) == {("0.0.0.0", "UDP", 53)}
    assert table.ports.of_row(1) == frozenset()
    assert table.row_of_pod("default/c") == 0
    assert table.info(0).name == "n3"


def test_the_last_node_may_leave() -> None:
    table = draw("node\nn1").table
    table.remove_node("n1")
    assert table.n_nodes == 0
    assert table.allocatable("cpu").tolist() == []
    assert table.order.tolist() == []


# Pods whose node is not there.


def test_a_pod_waits_for_its_node() -> None:
    table = table_of([node("n1")], [pod("a", on="n2", cpu="1")])
    assert table.pod_count.tolist() == [0]
    assert table.row_of_pod("default/a") == -1
    assert table.knows_pod("default/a")
    waiting = table.pod("default/a")
    assert waiting is not None
    assert waiting.pod.name == "a"
    table.add_node(node("n2"))
    assert table.requested("cpu").tolist() == [0, 1000]
    assert table.row_of_pod("default/a") == 1


def test_the_pods_of_a_node_that_leaves_come_back_with_it() -> None:
    table = table_of([node("n1"), node("n2")], [pod("a", on="n1", cpu="1"), pod("b", on="n1")])
    table.remove_node("n1")
    assert table.pod_count.tolist() == [0]
    table.remove_pod("default/b")
    table.add_pod(pod("c", on="n1", cpu="2"))
    table.add_node(node("n1"))
    assert [info.pod.name for info in table.pods[1]] == ["a", "c"]
    assert table.requested("cpu").tolist() == [0, 3000]


# Contradictions.


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda t: t.add_node(node("n1")), "node 'n1' is added twice; expected one node of a name"),
        (lambda t: t.update_node(node("n9")), "node 'n9' is not known"),
        (lambda t: t.remove_node("n9"), "node 'n9' is not known"),
        (
            lambda t: t.add_pod(pod("a", on="n2")),
            "pod default/a is added twice; it is already on 'n1'",
        ),
        (lambda t: t.remove_pod("default/z"), "pod default/z is not on any node"),
    ],
)
def test_a_contradiction_is_refused(change: Callable[[NodeTable], object], text: str) -> None:
    table = table_of([node("n1")], [pod("a", on="n1")])
    with pytest.raises(TableError, match=text):
        change(table)


def test_what_cannot_be_read_changes_nothing() -> None:
    table = table_of([node("n1")], [pod("a", on="n1", cpu="1")])
    with pytest.raises(QuantityError):
        table.add_node(node("n2", cpu="much"))
    with pytest.raises(QuantityError):
        table.update_node(node("n1", cpu="much"))
    with pytest.raises(QuantityError):
        table.add_pod(pod("b", on="n1", cpu="much"))
    with pytest.raises(QuantityError):
        table.update_pod(pod("a", on="n1", cpu="much"))
    assert table.names == ["n1"]
    assert table.allocatable("cpu").tolist() == [4000]
    assert table.requested("cpu").tolist() == [1000]
    assert table.knows_pod("default/a")
    assert not table.knows_pod("default/b")


# Followers.


class ChangeRecorder(PodWatcher):
    """Writes down what a watcher is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def pod_added(self, row: int, info: PodInfo) -> None:
        self.lines.append(f"+{info.pod.name} {row}")

    def pod_removed(self, row: int, info: PodInfo) -> None:
        self.lines.append(f"-{info.pod.name} {row}")

    def row_added(self, row: int) -> None:
        self.lines.append(f"row {row}")

    def row_moved(self, source: int, target: int) -> None:
        self.lines.append(f"{source} to {target}")

    def row_dropped(self, row: int) -> None:
        self.lines.append(f"no row {row}")

    def changes(self) -> str:
        text = ", ".join(self.lines)
        self.lines.clear()
        return text


def test_a_watcher_hears_of_every_row_and_pod() -> None:
    table = table_of([node("n1")], [pod("a", on="n1"), pod("z", on="n2")])
    recorder = ChangeRecorder()
    table.watch(recorder)
    assert recorder.changes() == "row 0, +a 0"
    table.add_node(node("n2"))
    assert recorder.changes() == "row 1, +z 1"
    table.update_node(node("n2", cpu="8"))
    assert recorder.changes() == ""
    table.add_pod(pod("b", on="n2"))
    table.update_pod(pod("a", on="n1", cpu="1"))
    assert recorder.changes() == "+b 1, -a 0, +a 0"
    table.remove_node("n1")
    assert recorder.changes() == "-a 0, 1 to 0, no row 1"


def test_the_journal_names_the_rows_to_read_again() -> None:
    table = table_of([node("n1"), node("n2"), node("n3")])
    start = table.journal.generation
    table.add_pod(pod("a", on="n2"))
    table.add_pod(pod("b", on="n2"))
    assert table.journal.since(start) == [1]
    middle = table.journal.generation
    table.remove_node("n1")
    assert table.journal.since(middle) == [0]
    assert table.journal.since(start) == [1, 0]
    assert table.journal.since(table.journal.generation) == []


def test_a_reader_who_fell_far_behind_reads_everything_again() -> None:
    table = table_of([node("n1")])
    start = table.journal.generation
    for number in range(2500):
        table.add_pod(pod(f"p{number}", on="n1"))
        table.remove_pod(f"default/p{number}")
    assert table.journal.since(start) is None
    assert table.journal.since(table.journal.generation - 1) == [0]


def test_columns_of_all_rows_are_views() -> None:
    table = draw("node\nn1\nn2").table
    assert np.shares_memory(table.allocatable("cpu")[table.all_rows], table.allocatable("cpu"))


def test_one_node_is_read_again_after_it_changed() -> None:
    table = table_of([node("n1"), node("n2")])
    first, second = table.info(0), table.info(1)
    table.add_pod(pod("a", on="n2", cpu="1"))
    assert table.info(0) is first
    assert table.info(1) is not second
    assert second.requested == {}
    assert table.info(1).requested == {"cpu": 1000}
