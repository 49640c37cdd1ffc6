"""CheckNodeCondition and the pressure predicates: conditions of nodes.

With the gate TaintNodesByCondition, on by default, taints replace these predicates.

Source: Kubernetes v1.13, predicates.CheckNodeConditionPredicate and CheckNode*PressurePredicate.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import OK, NodeInfo, NodeTable, Rows, Status, unresolvable
from stowplan.framework.plugin import Plugin
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import exact
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.node_unschedulable import CordonedNodesFilter

NOT_READY = "node(s) were not ready"
OUT_OF_DISK = "node(s) were out of disk space"
NETWORK_UNAVAILABLE = "node(s) had unavailable network"
NODE_UNSCHEDULABLE = "node(s) were unschedulable"

_REASONS = (NOT_READY, OUT_OF_DISK, NETWORK_UNAVAILABLE, NODE_UNSCHEDULABLE)
_HEALTHY = {
    "Ready": ("True", NOT_READY),
    "OutOfDisk": ("False", OUT_OF_DISK),
    "NetworkUnavailable": ("False", NETWORK_UNAVAILABLE),
}
_BASE = len(_REASONS) + 1
_DIGITS_MAX = 26


class CheckNodeCondition:
    """Filter on Ready, OutOfDisk, NetworkUnavailable and `spec.unschedulable`.

    Differs: of more than twenty-six failing conditions of a node that many are named.
    """

    name = "CheckNodeCondition"
    declaration = Plugin(name=name, reads=(), row_local=True)

    def filter(self, node: NodeInfo) -> Status:
        """Success for a healthy node that is not cordoned; every failing condition is named."""
        code = _code(node.node)
        return self.filter_status(code) if code else OK

    def filter_column(self, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds, else a code for `filter_status`."""
        asked = nodes.nodes[rows] if isinstance(rows, slice) else [nodes.nodes[r] for r in rows]
        return np.fromiter(map(_code, asked), dtype=np.int64, count=n_rows_of(rows))

    def filter_status(self, code: int) -> Status:
        """The refusal of a code: a reason per digit."""
        reasons = []
        while code:
            code, digit = divmod(code, _BASE)
            reasons.append(_REASONS[digit - 1])
        return unresolvable(*reasons)

    def signature(self) -> object:
        """Empty: nothing of the pod is read."""
        return None


def _code(node: Node) -> int:
    """Failing conditions of a node, in order: a number whose digits are reasons, lowest first."""
    reasons = [
        _HEALTHY[c.type][1]
        for c in node.status.conditions
        if c.type in _HEALTHY and c.status != _HEALTHY[c.type][0]
    ]
    if node.spec.unschedulable:
        reasons.append(NODE_UNSCHEDULABLE)
    digits = [_REASONS.index(reason) + 1 for reason in reasons[:_DIGITS_MAX]]
    return sum(digit * _BASE**place for place, digit in enumerate(digits))


class CheckNodeUnschedulable(CordonedNodesFilter):
    """Filter on `spec.unschedulable` of nodes."""

    name = "CheckNodeUnschedulable"
    declaration = Plugin(name=name, reads=(), row_local=True)


class _PressurePredicate:
    """Filter on one condition; the last one of its type counts."""

    CONDITION = ""
    REJECTED: Status
    row_local = True
    reads: tuple[type[Object], ...] = ()

    def is_affected(self, pod: Pod) -> bool:
        """True for a pod that may not run on nodes under this pressure."""
        return True

    def is_pressed(self, node: Node) -> bool:
        """True for a node under this pressure."""
        of_type = [c.status for c in node.status.conditions if c.type == self.CONDITION]
        return bool(of_type) and of_type[-1] == "True"

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success unless the node is under pressure and the pod affected."""
        return self.REJECTED if self.is_affected(pod) and self.is_pressed(node.node) else OK

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Bools:
        """bool (n_rows,): True where `filter` succeeds."""
        if not self.is_affected(pod):
            return np.ones(n_rows_of(rows), dtype=np.bool_)
        asked = nodes.nodes[rows] if isinstance(rows, slice) else [nodes.nodes[r] for r in rows]
        return ~np.fromiter(map(self.is_pressed, asked), dtype=np.bool_, count=n_rows_of(rows))

    def signature(self, pod: Pod) -> object:
        """Whether the pod is affected."""
        return self.is_affected(pod)


class CheckNodeMemoryPressure(_PressurePredicate):
    """Filter on MemoryPressure, for best-effort pods only."""

    name = "CheckNodeMemoryPressure"
    CONDITION = "MemoryPressure"
    REJECTED = unresolvable("node(s) had memory pressure")

    def is_affected(self, pod: Pod) -> bool:
        """True for a pod whose containers neither request nor limit cpu or memory."""
        return not any(
            name in ("cpu", "memory") and exact(quantity).unscaled > 0
            for container in pod.spec.containers
            for amounts in (container.resources.requests, container.resources.limits)
            for name, quantity in amounts.items()
        )


class CheckNodeDiskPressure(_PressurePredicate):
    """Filter on DiskPressure."""

    name = "CheckNodeDiskPressure"
    CONDITION = "DiskPressure"
    REJECTED = unresolvable("node(s) had disk pressure")


class CheckNodePIDPressure(_PressurePredicate):
    """Filter on PIDPressure."""

    name = "CheckNodePIDPressure"
    CONDITION = "PIDPressure"
    REJECTED = unresolvable("node(s) had pid pressure")
