"""VolumeUse: what is kept of the pods' volumes, after any events, is what a rebuild finds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.columns import NodeTable, Overlay, PodInfo
from stowplan.columns.nodetable import table_of
from stowplan.objects.pod import Pod
from stowplan.plugins.volumes.volume_usage import VolumeUsage, disk_keys
from tests.plugins.volume_cases import DISKS, NODES, fails, node, pod


def contents(use: VolumeUsage, n_nodes: int) -> dict[str, Any]:
    """What a VolumeUse holds, lists in a fixed order."""
    return {
        "pods": {row: sorted(info.uid for info in infos) for row, infos in use.pods.items()},
        "claims": dict(use.claims),
        "disks": {key: dict(rows) for key, rows in use.disks.items()},
        "attachable": use.attachable[:n_nodes].tolist(),
        "delicate": dict(use.delicate),
    }


def rebuilt(nodes: NodeTable) -> dict[str, Any]:
    use = VolumeUsage(nodes)
    for row in range(nodes.n_nodes):
        use.row_added(row)
        for info in nodes.pods[row]:
            use.pod_added(row, info)
    return contents(use, nodes.n_nodes)


def arrive(nodes: NodeTable, name: str, one: Pod) -> None:
    if nodes.row(name) < 0:
        nodes.add_node(node(name))


def leave(nodes: NodeTable, name: str, one: Pod) -> None:
    if nodes.row(name) >= 0:
        nodes.remove_node(name)


def bind(nodes: NodeTable, name: str, one: Pod) -> None:
    if nodes.pod(one.uid) is not None:
        nodes.remove_pod(one.uid)
    else:
        nodes.add_pod(one)


def ask(nodes: NodeTable, name: str, one: Pod) -> None:
    """What if: a pod comes, another goes, and all is undone."""
    row = nodes.row(name)
    with Overlay(nodes) as overlay:
        if row >= 0:
            overlay.place(PodInfo.of(pod("c9", name="guest")), row)
            overlay.take(nodes.pods[row][0].uid, row)


some_volumes = st.lists(
    st.sampled_from(
        ("c0", "c1", DISKS[0], DISKS[0], DISKS[5], {"ephemeral": {}}, {"emptyDir": {}})
    ),
    max_size=2,
)
EVENTS: tuple[Callable[[NodeTable, str, Pod], None], ...] = (arrive, leave, bind, bind, bind, ask)


def follow(data: st.DataObject, kind: type[VolumeUsage]) -> None:
    """Let events happen to a table that a VolumeUsage watches, and compare after some."""
    nodes = table_of([node(name) for name in NODES[:2]])
    use = kind(nodes)
    nodes.watch(use)
    homes = st.sampled_from(NODES[:3])
    made = [pod(*data.draw(some_volumes), name=f"p{i}", on=data.draw(homes)) for i in range(6)]
    for _ in range(12):
        event = data.draw(st.sampled_from(EVENTS))
        event(nodes, data.draw(homes), data.draw(st.sampled_from(made)))
        # Claims are counted from the first time on that they are asked for.
        if data.draw(st.booleans()):
            assert contents(use, nodes.n_nodes) == rebuilt(nodes)


@given(st.data())
def test_kept_is_rebuilt(data: st.DataObject) -> None:
    follow(data, VolumeUsage)


class StaysBehind(VolumeUsage):
    """Wrong: what is known of a row does not move with its node."""

    def row_moved(self, source: int, target: int) -> None:
        pass


class CountsDisksOnce(VolumeUsage):
    """Wrong: a disk goes with the first of its pods."""

    def pod_removed(self, row: int, info: PodInfo) -> None:
        super().pod_removed(row, info)
        for volume in info.pod.spec.volumes:
            for key in disk_keys(volume):
                if key in self.disks:
                    self.disks[key].pop(row, None)


class CountsClaimsOnce(VolumeUsage):
    """Wrong: claims are not counted any more once they were asked for."""

    def pod_added(self, row: int, info: PodInfo) -> None:
        counted, self._claims = self._claims, None
        super().pod_added(row, info)
        self._claims = counted


@pytest.mark.parametrize("wrong", [StaysBehind, CountsDisksOnce, CountsClaimsOnce])
def test_wrong_keeping_is_caught(wrong: type[VolumeUsage]) -> None:
    assert fails(lambda data: follow(data, wrong))


def test_it_is_kept_once_per_table() -> None:
    nodes = table_of([node("n1")], [pod("c", name="p", on="n1")])
    use = VolumeUsage.of(nodes)
    assert VolumeUsage.of(nodes) is use
    assert use.claims == {"default/c": 1}
    np.testing.assert_array_equal(use.attachable[:1], [1])
