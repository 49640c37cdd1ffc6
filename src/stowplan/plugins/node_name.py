"""NodeName: a pod that names a node runs on that node only.

Source: kube-scheduler v1.36, plugins/nodename.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Bools
from stowplan.framework import OK, NodeInfo, NodeTable, Rows, Status, unresolvable
from stowplan.framework.clusterevents import NODE, Action, RegisteredEvents, on
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.plugins.arithmetic import n_rows_of


class NodeNameFilter:
    """Filter on `spec.nodeName`, with the refusal of its subclasses."""

    REJECTED: Status

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success on the node that the pod names, or on all nodes when it names none."""
        return OK if pod.node_name in ("", node.name) else self.REJECTED

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Bools:
        """bool (n_rows,): True where `filter` succeeds."""
        if not pod.node_name:
            return np.ones(n_rows_of(rows), dtype=np.bool_)
        is_named = np.zeros(nodes.n_nodes, dtype=np.bool_)
        row = nodes.row(pod.node_name)
        if row >= 0:
            is_named[row] = True
        return is_named[rows]

    def signature(self, pod: Pod) -> object:
        """The node that the pod names."""
        return pod.node_name


class NodeName(NodeNameFilter):
    """Filter on `spec.nodeName`."""

    name = "NodeName"
    declaration = Plugin(name=name, reads=(), row_local=True, node_only=True, by_outline=True)
    # Unresolvable: no eviction renames a node.
    REJECTED = unresolvable("node(s) didn't match the requested node name")

    def events_to_register(self) -> RegisteredEvents:
        """A node is added."""
        return (on(NODE, Action.ADD),)
