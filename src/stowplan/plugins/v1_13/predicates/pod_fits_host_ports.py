"""PodFitsHostPorts: a host port is used once per node and address.

Source: Kubernetes v1.13, predicates.PodFitsHostPorts and scheduler/cache/host_ports.go.
"""

from __future__ import annotations

from stowplan.columns.array_types import Bools
from stowplan.framework import OK, NodeInfo, NodeTable, Rows, Status, unschedulable
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.plugins.node_ports import host_ports_of


class PodFitsHostPorts:
    """Filter on host ports.

    Differs: the host ports of sidecars, which 1.13 does not know, count too.
    """

    name = "PodFitsHostPorts"
    row_local = True
    reads: tuple[type[Object], ...] = ()
    REJECTED = unschedulable("node(s) didn't have free ports for the requested pod ports")

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success where every port of the pod is free."""
        return self.REJECTED if any(map(node.port_conflicts, host_ports_of(pod))) else OK

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Bools:
        """bool (n_rows,): True where `filter` succeeds."""
        return ~nodes.ports.conflicts(host_ports_of(pod), nodes.n_nodes)[rows]

    def signature(self, pod: Pod) -> object:
        """The ports, in any order."""
        return frozenset(host_ports_of(pod))


class PodFitsPorts(PodFitsHostPorts):
    """The old name of PodFitsHostPorts. In a Policy file it has no effect, as in the original."""

    name = "PodFitsPorts"
