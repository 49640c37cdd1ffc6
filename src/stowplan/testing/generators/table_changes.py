"""Generated changes of a NodeTable, as values."""

from __future__ import annotations

import msgspec

from stowplan.columns import NodeTable
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.testing.generators.choices import RandomSource, chance, pick
from stowplan.testing.generators.scenes import node, pod

NODE_NAMES = ("n0", "n1", "n2", "n3", "n4")


class Step(msgspec.Struct, frozen=True):
    """A change of a table: the method that applies it, and the node, pod, name or uid it gets.

    Pods may be bound to a node that does not exist, and stay when their node is deleted.
    """

    method: str
    given: Node | Pod | str | None = None

    def apply(self, table: NodeTable) -> None:
        """Apply the change to `table`."""
        change = getattr(table, self.method)
        change(*(() if self.given is None else (self.given,)))


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
            case Step("add_node", Node() as arrived):
                present.add(arrived.name)
            case Step("remove_node", str() as name):
                present.discard(name)
            case Step("add_pod", Pod() as there):
                bound[there.uid] = there.node_name
            case Step("remove_pod", str() as uid):
                del bound[uid]
    return steps


def _step(rng: RandomSource, number: int, present: set[str], bound: dict[str, str]) -> Step:
    name = pick(rng, NODE_NAMES)
    if chance(rng, 8):
        return Step("refresh")
    if chance(rng, 2):
        if name not in present:
            return Step("add_node", node(rng, name))
        return Step("update_node", node(rng, name)) if chance(rng, 2) else Step("remove_node", name)
    if not bound or not chance(rng, 2):
        return Step("add_pod", pod(rng, f"p{number}", on=name))
    uid = pick(rng, tuple(bound))
    if chance(rng, 3):
        return Step("update_pod", pod(rng, uid, on=bound[uid]))
    return Step("remove_pod", uid)
