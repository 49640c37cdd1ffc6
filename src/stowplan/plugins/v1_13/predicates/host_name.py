"""HostName: a pod with `spec.nodeName` runs on that node.

Source: Kubernetes v1.13, predicates.PodFitsHost.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Bools
from stowplan.framework import OK, NodeInfo, NodeTable, Rows, Status, unresolvable
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod


class HostName:
    """Filter on `spec.nodeName`."""

    name = "HostName"
    declaration = Plugin(name=name, reads=())
    REJECTED = unresolvable("node(s) didn't match the requested hostname")

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success where the pod names this node or none."""
        return OK if pod.node_name in ("", node.name) else self.REJECTED

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Bools:
        """bool (n_rows,): True where `filter` succeeds."""
        passes = np.full(nodes.n_nodes, not pod.node_name)
        row = nodes.row(pod.node_name)
        if row >= 0:
            passes[row] = True
        chosen: Bools = passes[rows]
        return chosen

    def signature(self, pod: Pod) -> object:
        """The node that the pod names."""
        return pod.node_name
