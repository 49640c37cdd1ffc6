"""NodeUnschedulable: keep pods off cordoned nodes unless they tolerate it.

Source: kube-scheduler v1.36, plugins/nodeunschedulable.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Bools
from stowplan.framework import OK, Handle, NodeInfo, NodeTable, Rows, Status, unresolvable
from stowplan.framework.clusterevents import NODE, POD, Action, QueueingHint, RegisteredEvents, on
from stowplan.framework.plugin import Plugin
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.taints import UNSCHEDULABLE_TAINT, is_tolerated
from stowplan.plugins.pod_hints import queueing_hint


class CordonedNodesFilter:
    """Filter on `spec.unschedulable` of nodes, unless the pod tolerates it."""

    # Unresolvable: no eviction uncordons a node.
    REJECTED = unresolvable("node(s) were unschedulable")
    # Whether tolerations may compare numbers.
    _comparisons = False

    def tolerates_unschedulable(self, pod: Pod) -> bool:
        """True when the pod tolerates the taint of cordoned nodes."""
        return is_tolerated(UNSCHEDULABLE_TAINT, pod.tolerations, self._comparisons)

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success unless the node is cordoned and the pod does not tolerate it."""
        return OK if not node.unschedulable or self.tolerates_unschedulable(pod) else self.REJECTED

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Bools:
        """bool (n_rows,): True where `filter` succeeds."""
        cordoned = nodes.unschedulable[rows]
        return np.ones_like(cordoned) if self.tolerates_unschedulable(pod) else ~cordoned

    def signature(self, pod: Pod) -> object:
        """Whether the pod tolerates cordoned nodes."""
        return self.tolerates_unschedulable(pod)


class NodeUnschedulable(CordonedNodesFilter):
    """Filter on `spec.unschedulable` of nodes."""

    name = "NodeUnschedulable"
    declaration = Plugin(name=name, reads=(), row_local=True, node_only=True, by_outline=True)

    def __init__(self, handle: Handle) -> None:
        self._comparisons = handle.gates.taint_toleration_comparison_operators

    def events_to_register(self) -> RegisteredEvents:
        """A node is added or uncordoned, or the pod tolerates more."""
        return (
            on(NODE, Action.ADD | Action.UPDATE_NODE_TAINT, self._after_node),
            on(POD, Action.UPDATE_POD_TOLERATION, self._after_toleration),
        )

    def _after_node(self, pod: Pod, old: Node | None, new: Node) -> QueueingHint:
        was_closed = old is None or old.spec.unschedulable
        return queueing_hint(was_closed and not new.spec.unschedulable)

    def _after_toleration(self, pod: Pod, old: Pod, new: Pod) -> QueueingHint:
        return queueing_hint(new.uid == pod.uid and self.tolerates_unschedulable(new))
