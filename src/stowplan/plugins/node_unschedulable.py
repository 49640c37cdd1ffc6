"""NodeUnschedulable: keep pods off cordoned nodes unless they tolerate it.

Source: kube-scheduler v1.36, plugins/nodeunschedulable.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stowplan.framework import OK, Handle, NodeInfo, NodeTable, Rows, Status, unresolvable
from stowplan.framework.clusterevents import ClusterEventWithHint
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.taints import UNSCHEDULABLE_TAINT, is_tolerated
from stowplan.plugins import node_hints as hints


class NodeUnschedulable:
    """Filter on `spec.unschedulable` of nodes."""

    name = "NodeUnschedulable"
    declaration = Plugin(name=name, reads=(), row_local=True, node_only=True)
    # Unresolvable: no eviction uncordons a node.
    REJECTED = unresolvable("node(s) were unschedulable")

    def __init__(self, handle: Handle) -> None:
        self._comparisons = handle.gates.taint_toleration_comparison_operators

    def tolerates_unschedulable(self, pod: Pod) -> bool:
        """True when the pod tolerates the taint of cordoned nodes."""
        return is_tolerated(UNSCHEDULABLE_TAINT, pod.tolerations, self._comparisons)

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success unless the node is cordoned and the pod does not tolerate it."""
        return OK if not node.unschedulable or self.tolerates_unschedulable(pod) else self.REJECTED

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.bool_]:
        """bool (n_rows,): True where `filter` succeeds."""
        cordoned = nodes.unschedulable[rows]
        return np.ones_like(cordoned) if self.tolerates_unschedulable(pod) else ~cordoned

    def events_to_register(self) -> tuple[ClusterEventWithHint, ...]:
        """A node is added or uncordoned, or the pod tolerates more."""
        return hints.node_unschedulable_events(self.tolerates_unschedulable)

    def signature(self, pod: Pod) -> object:
        """Whether the pod tolerates cordoned nodes."""
        return self.tolerates_unschedulable(pod)
