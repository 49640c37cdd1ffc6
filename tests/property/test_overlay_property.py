"""Whatever an Overlay tries, the table is afterwards as it was."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.columns import NodeTable, Overlay, PodInfo
from stowplan.columns.nodetable import PodWatcher
from stowplan.objects.pod import Pod
from stowplan.testing import GeneratedCluster, contents
from stowplan.testing.strategies import clusters, pods
from tests.property.wrong import assert_caught


class AnnouncedPods(PodWatcher):
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


class Try(msgspec.Struct, frozen=True):
    """One thing to try. row, choice: taken modulo what there is. pod: what is placed."""

    verb: str
    row: int
    choice: int
    pod: Pod | None


@st.composite
def plans(draw: st.DrawFn) -> list[Try]:
    """What to try, in order."""
    verbs = draw(st.lists(st.sampled_from(["mark", "take", "place", "rollback"]), max_size=8))
    return [
        Try(
            verb,
            draw(st.integers(0, 9)),
            draw(st.integers(0, 9)),
            draw(pods(f"x{number}")) if verb == "place" else None,
        )
        for number, verb in enumerate(verbs)
    ]


def tried(make: Callable[[NodeTable], Overlay], scene: GeneratedCluster, plan: list[Try]) -> None:
    """Try what is planned; nothing of it may remain, nor after each rollback."""
    table = scene.table()
    announced = AnnouncedPods()
    table.watch(announced)
    before, believed = contents(table), announced.believed()
    with make(table) as overlay:
        marks = [(overlay.mark(), before, believed)]
        for attempt in plan if table.n_nodes else ():
            row = attempt.row % table.n_nodes
            here = table.pods[row]
            if attempt.pod is not None:
                overlay.place(PodInfo.of(attempt.pod), row)
            elif attempt.verb == "take" and here:
                overlay.take(here[attempt.choice % len(here)].uid, row)
            elif attempt.verb == "mark":
                marks.append((overlay.mark(), contents(table), announced.believed()))
            elif attempt.verb == "rollback":
                mark, at_mark, believed_then = marks[attempt.choice % len(marks)]
                marks = [known for known in marks if known[0] <= mark]
                overlay.rollback(mark)
                assert contents(table) == at_mark
                assert announced.believed() == believed_then
    assert contents(table) == before
    assert announced.believed() == believed


CROWDED = clusters(n_nodes_max=2, n_pods_max=6, n_pending_max=1)


@given(CROWDED, plans())
def test_what_was_tried_leaves_no_trace(scene: GeneratedCluster, plan: list[Try]) -> None:
    tried(Overlay, scene, plan)


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
    assert_caught(lambda scene, plan: tried(wrong, scene, plan), CROWDED, plans())
