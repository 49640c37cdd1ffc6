"""CheckNodeUnschedulable: keep pods off cordoned nodes unless they tolerate it.

Source: Kubernetes v1.13, predicates.CheckNodeUnschedulablePredicate.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Bools
from stowplan.framework import OK, NodeInfo, NodeTable, Rows, Status, unresolvable
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.taints import UNSCHEDULABLE_TAINT, is_tolerated
from stowplan.plugins.v1_13.predicates.check_node_condition import NODE_UNSCHEDULABLE


class CheckNodeUnschedulable:
    """Filter on `spec.unschedulable` of nodes."""

    name = "CheckNodeUnschedulable"
    declaration = Plugin(name=name, reads=(), row_local=True)
    REJECTED = unresolvable(NODE_UNSCHEDULABLE)

    def tolerates_unschedulable(self, pod: Pod) -> bool:
        """True when the pod tolerates the taint of cordoned nodes."""
        return is_tolerated(UNSCHEDULABLE_TAINT, pod.tolerations)

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
