"""Sessions decide the same whether columns are kept or not, on the inventory or on a copy of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.batch.best_nodes import BestNodeCache
from stowplan.batch.state.jobs import TaskInfo
from stowplan.batch.state.nodes import SessionNodes
from stowplan.batch.state.session_state import ClusterInfo
from stowplan.batch.state.standalone_inventory import StandaloneInventory
from stowplan.columns.nodetable import table_of
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.pod import Pod
from tests.batch.batch_cluster import BatchCluster
from tests.property.wrong import assert_caught
from tests.soak import examples

Decided = list[tuple[dict[str, str], list[str]]]


class Shape:
    """A drawn cluster. jobs: (size, least, milli-CPU, queue, priority, node or -1)."""

    def __init__(self, cpus: list[int], jobs: list[tuple[int, int, int, int, int, int]]) -> None:
        self.cpus = cpus
        self.jobs = jobs

    def __repr__(self) -> str:
        return f"Shape({self.cpus}, {self.jobs})"

    def cluster(self) -> BatchCluster:
        cluster = BatchCluster()
        cluster.queue("q0")
        cluster.queue("q1", 2)
        cluster.priority("p1", 10)
        for number, cpu in enumerate(self.cpus):
            cluster.node(f"n{number}", cpu=cpu)
        for number, (size, least, milli, queue, priority, node) in enumerate(self.jobs):
            home = f"n{node}" if 0 <= node < len(self.cpus) else ""
            cluster.gang(
                f"j{number}",
                size,
                f"{milli}m",
                least=min(least, size),
                queue=f"q{queue}",
                priority="p1" if priority else "",
                node=home,
            )
        return cluster


SHAPES = st.builds(
    Shape,
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.lists(
        st.tuples(
            st.integers(1, 4),
            st.integers(0, 4),
            st.sampled_from([0, 250, 500, 1000, 1500]),
            st.integers(0, 1),
            st.integers(0, 1),
            st.integers(-2, 5),
        ),
        max_size=6,
    ),
)


def decided(shape: Shape) -> Decided:
    """What three sessions decide; between them what was bound or evicted stays under way."""
    cluster = shape.cluster()
    return [cluster.run() for _ in range(3)]


def check_kept(shape: Shape, anew: type[BestNodeCache]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kept = decided(shape)
        patch.setattr("stowplan.batch.session.BestNodeCache", anew)
        assert decided(shape) == kept


class _Anew(BestNodeCache):
    """Keeps nothing between two questions."""

    def best(self, task: TaskInfo, *, later: bool = False) -> int:
        self._kept.clear()
        self._hopeless.clear()
        return super().best(task, later=later)


class _Stale(BestNodeCache):
    """Forgets that rows were touched."""

    def best(self, task: TaskInfo, *, later: bool = False) -> int:
        found = super().best(task, later=later)
        for kept in self._kept.values():
            kept.seen = 10**6
        return found


@settings(max_examples=examples(40), deadline=None)
@given(SHAPES)
def test_kept_choices_are_those_made_anew(shape: Shape) -> None:
    check_kept(shape, _Anew)


def test_choices_that_go_stale_are_caught() -> None:
    assert_caught(lambda shape: check_kept(shape, _Stale), SHAPES)


class _Copying(StandaloneInventory):
    """Lets sessions work on a copy, and applies their decisions to itself."""

    def open(self, nominated_pods: Iterable[tuple[Pod, str]] = ()) -> ClusterInfo:
        return deepcopy(super().open(nominated_pods))

    def bind(self, task: TaskInfo) -> None:
        own = self.jobs[task.job].tasks[task.uid]
        self.jobs[task.job].turn(own, TaskStatus.BINDING)
        own.node = task.node
        super().bind(own)

    def evict(self, task: TaskInfo, reason: str) -> None:
        own = self.jobs[task.job].tasks[task.uid]
        self.jobs[task.job].turn(own, TaskStatus.RELEASING)
        super().evict(own, reason)


def check_copied(shape: Shape, make: Callable[..., StandaloneInventory]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        live = decided(shape)
        patch.setattr("tests.batch.batch_cluster.StandaloneInventory", make)
        assert decided(shape) == live


@settings(max_examples=examples(40), deadline=None)
@given(SHAPES)
def test_a_session_on_the_inventory_itself_decides_as_on_a_copy(shape: Shape) -> None:
    check_copied(shape, _Copying)


class _Shallow(_Copying):
    """Copies the nodes without the pods on them."""

    def open(self, nominated_pods: Iterable[tuple[Pod, str]] = ()) -> ClusterInfo:
        opened = super().open(nominated_pods)
        bare = SessionNodes(table_of(opened.nodes.nodes))
        return msgspec.structs.replace(opened, nodes=bare)


def test_a_copy_that_lacks_pods_is_caught() -> None:
    assert_caught(lambda shape: check_copied(shape, _Shallow), SHAPES)
