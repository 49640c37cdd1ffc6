"""What happens to a cluster, step by step: changes of a NodeTable as values, by the dice."""

from __future__ import annotations

import msgspec

from stowplan.columns import NodeTable
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.testing.dice import Dice, chance, pick
from stowplan.testing.generate import node, pod

NODE_NAMES = ("n0", "n1", "n2", "n3", "n4")


class NodeAdded(msgspec.Struct, frozen=True):
    """A node arrived."""

    node: Node

    def apply(self, table: NodeTable) -> None:
        """Let it happen to `table`."""
        table.add_node(self.node)


class NodeChanged(msgspec.Struct, frozen=True):
    """A node has another content."""

    node: Node

    def apply(self, table: NodeTable) -> None:
        """Let it happen to `table`."""
        table.update_node(self.node)


class NodeRemoved(msgspec.Struct, frozen=True):
    """A node left; its pods did not."""

    name: str

    def apply(self, table: NodeTable) -> None:
        """Let it happen to `table`."""
        table.remove_node(self.name)


class PodBound(msgspec.Struct, frozen=True):
    """A pod was bound, perhaps to a node that is not there."""

    pod: Pod

    def apply(self, table: NodeTable) -> None:
        """Let it happen to `table`."""
        table.add_pod(self.pod)


class PodChanged(msgspec.Struct, frozen=True):
    """A bound pod has another content."""

    pod: Pod

    def apply(self, table: NodeTable) -> None:
        """Let it happen to `table`."""
        table.update_pod(self.pod)


class PodGone(msgspec.Struct, frozen=True):
    """A bound pod ended or was deleted."""

    uid: str

    def apply(self, table: NodeTable) -> None:
        """Let it happen to `table`."""
        table.remove_pod(self.uid)


class Refreshed(msgspec.Struct, frozen=True):
    """An attempt began: order and image counts were taken over."""

    def apply(self, table: NodeTable) -> None:
        """Let it happen to `table`."""
        table.refresh()


Step = NodeAdded | NodeChanged | NodeRemoved | PodBound | PodChanged | PodGone | Refreshed


def history(dice: Dice, n_steps: int) -> list[Step]:
    """So many steps from an empty cluster on, each possible after those before it.

    Nodes leave and come back under few names, so rows move and pods wait for their node.
    """
    present: set[str] = set()
    bound: dict[str, str] = {}
    steps: list[Step] = []
    for number in range(n_steps):
        step = _step(dice, number, present, bound)
        steps.append(step)
        match step:
            case NodeAdded(node=arrived):
                present.add(arrived.name)
            case NodeRemoved(name=name):
                present.discard(name)
            case PodBound(pod=there):
                bound[there.uid] = there.node_name
            case PodGone(uid=uid):
                del bound[uid]
    return steps


def _step(dice: Dice, number: int, present: set[str], bound: dict[str, str]) -> Step:
    name = pick(dice, NODE_NAMES)
    if chance(dice, 8):
        return Refreshed()
    if chance(dice, 2):
        if name not in present:
            return NodeAdded(node(dice, name))
        return NodeChanged(node(dice, name)) if chance(dice, 2) else NodeRemoved(name)
    if not bound or not chance(dice, 2):
        return PodBound(pod(dice, f"p{number}", on=name))
    uid = pick(dice, tuple(bound))
    if chance(dice, 3):
        return PodChanged(pod(dice, uid, on=bound[uid]))
    return PodGone(uid)
