"""Whatever an Overlay tries, the table is afterwards as it was."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.columns import NodeTable, Overlay, PodInfo
from stowplan.columns.overlay import Placed
from stowplan.testing import contents
from stowplan.testing.history import Step
from stowplan.testing.strategies import histories, pods
from tests.property.wrong import assert_caught


class Told:
    """What a watcher must believe: the pods of each row, by announcements alone."""

    def __init__(self) -> None:
        self.pods: list[list[str]] = []

    def pod_added(self, row: int, info: PodInfo) -> None:
        self.pods[row].append(info.uid)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        self.pods[row].remove(info.uid)

    def row_added(self, row: int) -> None:
        self.pods.append([])

    def row_moved(self, source: int, target: int) -> None:
        raise AssertionError((source, target))

    def row_dropped(self, row: int) -> None:
        raise AssertionError(row)

    def believed(self) -> list[list[str]]:
        return [sorted(names) for names in self.pods]


def tried(make: Callable[[NodeTable], Overlay], steps: list[Step], data: Any) -> None:
    """Try placing, taking and rolling back; nothing of it may remain, nor after each rollback."""
    table = NodeTable()
    for step in steps:
        step.apply(table)
    told = Told()
    table.watch(told)
    before, believed = contents(table), told.believed()
    with make(table) as overlay:
        marks = [(overlay.mark(), contents(table), told.believed())]
        for number in range(data.draw(st.integers(0, 8)) if table.n_nodes else 0):
            row = data.draw(st.integers(0, table.n_nodes - 1))
            here = [info.uid for info in table.pods[row]]
            choice = data.draw(st.sampled_from(["place", "take", "mark", "rollback"]))
            if choice == "place":
                overlay.place(PodInfo.of(data.draw(pods(f"x{number}"))), row)
            elif choice == "take" and here:
                overlay.take(data.draw(st.sampled_from(here)), row)
            elif choice == "mark":
                marks.append((overlay.mark(), contents(table), told.believed()))
            elif choice == "rollback":
                mark, at_mark, believed_then = data.draw(st.sampled_from(marks))
                marks = [known for known in marks if known[0] <= mark]
                overlay.rollback(mark)
                assert contents(table) == at_mark
                assert told.believed() == believed_then
    assert contents(table) == before
    assert told.believed() == believed


@given(histories(), st.data())
def test_what_was_tried_leaves_no_trace(steps: list[Step], data: Any) -> None:
    tried(Overlay, steps, data)


class InOrder(Overlay):
    """Undoes the first change first."""

    def rollback(self, mark: int) -> None:
        self._ledger[mark:] = reversed(self._ledger[mark:])
        super().rollback(mark)


class FreesAllPorts(Overlay):
    """Undoes a placement with every port of the pod, also those that others hold."""

    def place(self, info: PodInfo, row: int) -> None:
        super().place(info, row)
        self._ledger[-1] = Placed(row, frozenset(info.footprint.ports))


@pytest.mark.parametrize("wrong", [InOrder, FreesAllPorts])
def test_control_wrong_overlays(wrong: type[Overlay]) -> None:
    assert_caught(lambda steps, data: tried(wrong, steps, data), histories(), st.data())
