"""Whatever an Overlay tries, the table is afterwards as it was."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.columns import NodeTable, Overlay, PodInfo
from stowplan.testing import Scene, contents
from stowplan.testing.strategies import clusters, pods
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


def tried(make: Callable[[NodeTable], Overlay], scene: Scene, data: Any) -> None:
    """Try placing, taking and rolling back; nothing of it may remain, nor after each rollback."""
    table = scene.table()
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


CROWDED = clusters(n_nodes_max=2, n_pods_max=6, n_pending_max=1)


@given(CROWDED, st.data())
def test_what_was_tried_leaves_no_trace(scene: Scene, data: Any) -> None:
    tried(Overlay, scene, data)


class LeavesOne(Overlay):
    """Undoes one change too few."""

    def rollback(self, mark: int) -> None:
        super().rollback(mark + 1)


class PutsBackLast(Overlay):
    """Puts a pod that was taken back at the end of its row."""

    def take(self, uid: str, row: int) -> PodInfo:
        info = super().take(uid, row)
        change = replace(self._ledger[-1], index=len(self.table.pods[row]))
        self._ledger[-1] = change
        return info


@pytest.mark.parametrize("wrong", [LeavesOne, PutsBackLast])
def test_control_wrong_overlays(wrong: type[Overlay]) -> None:
    assert_caught(lambda scene, data: tried(wrong, scene, data), CROWDED, st.data())
