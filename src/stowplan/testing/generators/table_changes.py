"""Generated changes of a NodeTable, as values."""

from __future__ import annotations

import msgspec

from stowplan.columns import NodeTable
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.testing.generators.choices import RandomSource, chance, pick
from stowplan.testing.generators.scenes import node, pod

NODE_NAMES = ("n0", "n1", "n2", "n3", "n4")


class AddNode(msgspec.Struct, frozen=True):
    """A node was added."""

    node: Node

    def apply(self, table: NodeTable) -> None:
        """Apply the change to `table`."""
        table.add_node(self.node)


class UpdateNode(msgspec.Struct, frozen=True):
    """A node was updated."""

    node: Node

    def apply(self, table: NodeTable) -> None:
        """Apply the change to `table`."""
        table.update_node(self.node)


class RemoveNode(msgspec.Struct, frozen=True):
    """A node was deleted; its pods were not."""

    name: str

    def apply(self, table: NodeTable) -> None:
        """Apply the change to `table`."""
        table.remove_node(self.name)


class AddBoundPod(msgspec.Struct, frozen=True):
    """A pod was bound, possibly to a node that does not exist."""

    pod: Pod

    def apply(self, table: NodeTable) -> None:
        """Apply the change to `table`."""
        table.add_pod(self.pod)


class UpdateBoundPod(msgspec.Struct, frozen=True):
    """A bound pod was updated."""

    pod: Pod

    def apply(self, table: NodeTable) -> None:
        """Apply the change to `table`."""
        table.update_pod(self.pod)


class RemoveBoundPod(msgspec.Struct, frozen=True):
    """A bound pod ended or was deleted."""

    uid: str

    def apply(self, table: NodeTable) -> None:
        """Apply the change to `table`."""
        table.remove_pod(self.uid)


class RefreshTable(msgspec.Struct, frozen=True):
    """An attempt began: order and image counts were updated."""

    def apply(self, table: NodeTable) -> None:
        """Apply the change to `table`."""
        table.refresh()


Step = (
    AddNode | UpdateNode | RemoveNode | AddBoundPod | UpdateBoundPod | RemoveBoundPod | RefreshTable
)


def random_steps(rng: RandomSource, n_steps: int) -> list[Step]:
    """Random changes of an initially empty cluster, each valid after those before it.

    Nodes are deleted and added again under few names, so rows move and pods wait for their node.
    """
    present: set[str] = set()
    bound: dict[str, str] = {}
    steps: list[Step] = []
    for number in range(n_steps):
        step = _step(rng, number, present, bound)
        steps.append(step)
        match step:
            case AddNode(node=arrived):
                present.add(arrived.name)
            case RemoveNode(name=name):
                present.discard(name)
            case AddBoundPod(pod=there):
                bound[there.uid] = there.node_name
            case RemoveBoundPod(uid=uid):
                del bound[uid]
    return steps


def _step(rng: RandomSource, number: int, present: set[str], bound: dict[str, str]) -> Step:
    name = pick(rng, NODE_NAMES)
    if chance(rng, 8):
        return RefreshTable()
    if chance(rng, 2):
        if name not in present:
            return AddNode(node(rng, name))
        return UpdateNode(node(rng, name)) if chance(rng, 2) else RemoveNode(name)
    if not bound or not chance(rng, 2):
        return AddBoundPod(pod(rng, f"p{number}", on=name))
    uid = pick(rng, tuple(bound))
    if chance(rng, 3):
        return UpdateBoundPod(pod(rng, uid, on=bound[uid]))
    return RemoveBoundPod(uid)
