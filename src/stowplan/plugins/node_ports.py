"""NodePorts: a host port is used once per node and address.

Source: kube-scheduler v1.36, plugins/nodeports.
"""

from __future__ import annotations

from stowplan.columns.array_types import Bools
from stowplan.columns.pods.podinfo import Port, host_ports
from stowplan.framework import OK, SKIP, NodeInfo, NodeTable, Rows, Status, unschedulable
from stowplan.framework.clusterevents import (
    NODE,
    POD,
    QUEUE_SKIP,
    Action,
    QueueingHint,
    RegisteredEvents,
    on,
)
from stowplan.framework.plugin import Plugin
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.pod_hints import is_assigned_or_nominated, queueing_hint

_KEPT = "NodePorts"


class HostPortsFilter:
    """Filter on the host ports of containers and sidecars."""

    # Resolvable: the pod that uses the port may be evicted.
    REJECTED = unschedulable("node(s) didn't have free ports for the requested pod ports")

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success where every port of the pod is free. Ports within the pod never conflict."""
        return self.REJECTED if any(map(node.port_conflicts, host_ports_of(pod))) else OK

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Bools:
        """bool (n_rows,): True where `filter` succeeds."""
        return ~nodes.ports.conflicts(host_ports_of(pod), nodes.n_nodes)[rows]

    def signature(self, pod: Pod) -> object:
        """The ports, in any order."""
        return frozenset(host_ports_of(pod))


class NodePorts(HostPortsFilter):
    """Filter on the host ports of containers and sidecars."""

    name = "NodePorts"
    declaration = Plugin(name=name, reads=(), row_local=True, by_outline=True, repeatable=True)

    def applies_to(self, pod: Pod) -> bool:
        """False for a pod without host ports."""
        return bool(host_ports_of(pod))

    def pre_filter(self, pod: Pod) -> Status:
        """Skip for pods without host ports."""
        return OK if host_ports_of(pod) else SKIP

    def explain(self, pod: Pod, node: NodeInfo) -> list[str]:
        """The ports that are in use."""
        return [
            f"port {number}/{protocol} on {ip} is taken"
            for ip, protocol, number in host_ports_of(pod)
            if node.port_conflicts((ip, protocol, number))
        ]

    def events_to_register(self) -> RegisteredEvents:
        """A node is added, or a pod frees a port."""
        return (on(POD, Action.DELETE, _after_delete), on(NODE, Action.ADD))


def _after_delete(pod: Pod, old: Pod, new: None) -> QueueingHint:
    """The deleted pod freed a port that the pod requests."""
    if not is_assigned_or_nominated(old):
        return QUEUE_SKIP
    freed = NodeInfo(Node(), used_ports=host_ports_of(old))
    return queueing_hint(any(map(freed.port_conflicts, host_ports_of(pod))))


def host_ports_of(pod: Pod) -> tuple[Port, ...]:
    """(ip, protocol, port) of every host port; cached per pod template."""
    kept: tuple[Port, ...] | None = pod.spec.__dict__.get(_KEPT)
    if kept is None:
        kept = pod.spec.__dict__[_KEPT] = host_ports(pod.spec)
    return kept
