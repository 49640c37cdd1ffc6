"""Edits: single changes of a pod, a node or the pods of a node, before they are tried.

The points of each edit are documented in docs/changes.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stowplan.columns import PodInfo
from stowplan.cycle.change import Operation
from stowplan.objects.devices.device import ResourceSlice
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import PodSpec

SpecChange = Callable[[PodSpec], tuple[PodSpec, list[Operation]]]
"""Returns the changed spec, and the operations with paths from the spec."""
NodeChange = Callable[[Node], tuple[Node, list[Operation]]]
"""Returns the changed node, and the operations with paths from the node."""
ObjectChange = Callable[[Any], tuple[Object, list[Operation]]]
"""Returns the changed object, and the operations with paths from it."""

UNCORDON, TOLERATION, ADD_VALUE, SKEW = 10, 10, 10, 10
LABEL, TAINT, DROP_TERM = 20, 20, 20
ANYWAY, DROP_REQUIRED = 50, 50
REQUEST_MAX = 100
ADD_DEVICE, ADD_NODE = 500, 1000
COUNTER_MAX = 900
PREEMPTIBLE, EQUAL, HIGHER = 100, 200, 400
"""Points of freeing a pod of lower, equal and higher priority."""


class PodEdit(msgspec.Struct, frozen=True):
    """A change of the pod's spec. position: index of the list entry that it removes or replaces;
    of several edits the one with the highest position is applied first. target: path of the part
    that it changes, where another edit may remove it."""

    kind: str
    cost: int
    text: str
    change: SpecChange
    position: int = 0
    target: tuple[object, ...] = ()


class NodeEdit(msgspec.Struct, frozen=True):
    """A change of a node. position: as in PodEdit."""

    kind: str
    cost: int
    text: str
    node: str
    change: NodeChange
    position: int = 0


class ObjectEdit(msgspec.Struct, frozen=True):
    """A change of a claim, or of a slice with the devices of a node. value: the object as it is.
    template: name of the ResourceClaimTemplate that a claim was made from, "" for none. position:
    as in PodEdit."""

    kind: str
    cost: int
    text: str
    value: Object
    change: ObjectChange
    position: int = 0
    template: str = ""


class FreeEdit(msgspec.Struct, frozen=True):
    """Pods are moved or ended, of one node and of others of its topology domains. moves: uid -> the
    node that the pod moves to."""

    cost: int
    node: str
    victims: tuple[PodInfo, ...]
    why: str = ""
    moves: dict[str, str] = {}
    kind: str = "free"
    position: int = 0

    @property
    def text(self) -> str:
        """The change in words."""
        does = [self._does(info) for info in self.victims]
        what = f"{self.why} on node {self.node}" if self.why else f"node {self.node}"
        return f"free {what} by {' and '.join(does)}"

    def _does(self, info: PodInfo) -> str:
        pod, target = info.pod, self.moves.get(info.uid)
        elsewhere = "" if pod.node_name == self.node else pod.node_name
        if target is None:
            return f"ending {pod.key}{elsewhere and f' on {elsewhere}'}"
        return f"moving {pod.key}{elsewhere and f' from {elsewhere}'} to {target}"


class AddNodeEdit(msgspec.Struct, frozen=True):
    """A node is added. pool: as in docs/changes.md. offered: its allocatable amounts. like: name of
    the node that it is as. slices: its devices."""

    cost: int
    pool: str
    node: Node
    offered: dict[str, int]
    like: str = ""
    slices: tuple[ResourceSlice, ...] = ()
    kind: str = "add-node"
    position: int = 0

    @property
    def text(self) -> str:
        """The change in words."""
        return f"add one node of pool {self.pool}"


Edit = PodEdit | NodeEdit | ObjectEdit | FreeEdit | AddNodeEdit


def cost_of(edits: Sequence[Edit]) -> int:
    """Points of edits that are made together: their sum."""
    return sum(edit.cost for edit in edits)


def can_be_combined(one: Edit, other: Edit) -> bool:
    """False for the same edit twice, and where one changes what the other removes."""
    if one.text == other.text:
        return False
    if not (isinstance(one, PodEdit) and isinstance(other, PodEdit)):
        return True
    shorter, longer = sorted((one.target, other.target), key=len)
    return not shorter or longer[: len(shorter)] != shorter


def is_of_slice(edit: Edit) -> bool:
    """True for a change of devices."""
    return isinstance(edit, ObjectEdit) and isinstance(edit.value, ResourceSlice)


def in_order(edits: Sequence[Edit]) -> list[Edit]:
    """The edits in an order in which no list index is moved by an earlier one."""
    return sorted(edits, key=lambda edit: -edit.position)


def pointer(*parts: object) -> str:
    """An RFC 6901 pointer of these unescaped parts."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
