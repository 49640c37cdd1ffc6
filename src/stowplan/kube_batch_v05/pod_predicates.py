"""Predicates of Kubernetes 1.13 in the order in which kube-batch v0.5 calls them.

Resources are no predicate: actions compare them with what is idle or being released.

Source: kube-batch v0.5, plugins/predicates; Kubernetes v1.13, algorithm/predicates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stowplan.columns.pods.podinfo import WILDCARD_IP, Port, host_ports
from stowplan.framework.deciders.tasks import OCCUPYING
from stowplan.kube_batch_v05.jobs import KubeBatchTask
from stowplan.kube_batch_v05.nodes import KubeBatchNode
from stowplan.kube_batch_v05.pod_affinity import PlacedPod, satisfies_pod_affinity
from stowplan.kube_batch_v05.session import KubeBatchSession
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import exact
from stowplan.objects.selectors import (
    label_key_errors,
    label_value_errors,
    node_selector_matches,
)
from stowplan.objects.taints import (
    HARD_EFFECTS,
    UNSCHEDULABLE_TAINT,
    is_tolerated,
    is_untolerated,
)

PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
"""Conditions that keep pods away where an argument of the plugin says so."""

_HEALTHY = {"Ready": "True", "OutOfDisk": "False", "NetworkUnavailable": "False"}


class PodPredicates:
    """The predicates for one task, on the state of a session at this time."""

    def __init__(
        self, session: KubeBatchSession, task: KubeBatchTask, pressures: Collection[str]
    ) -> None:
        """pressures: those of PRESSURES that count."""
        pod = task.pod
        self._pod = pod
        self._pressures = [
            condition
            for condition in pressures
            if condition != "MemoryPressure" or _is_best_effort(pod)
        ]
        self._selector = _sound_selector(pod.spec.node_selector)
        affinity = pod.spec.affinity
        node_affinity = None if affinity is None else affinity.node_affinity
        self._required = None if node_affinity is None else node_affinity.required
        self._ports = host_ports(pod.spec)
        self._nodes = {name: node.node for name, node in session.nodes.items() if node.node}
        self._placed = [
            PlacedPod(other.pod, other.node)
            for job in session.jobs.values()
            for status in OCCUPYING
            for other in job.of(status).values()
        ]
        self._reads_affinity = bool(
            affinity and (affinity.pod_affinity or affinity.pod_anti_affinity)
        ) or any(_keeps_others_away(other.pod) for other in self._placed)
        # A pod on a node that is not in the session makes the original fail for every node.
        self._all_known = all(other.node in self._nodes for other in self._placed)

    def passes(self, node: KubeBatchNode) -> bool:
        """True if the node may take one more pod, and this one."""
        value = node.node
        assert value is not None
        return (
            node.allocatable.pods > len(node.tasks)
            and _is_healthy(value)
            and self._tolerates(value)
            and self._selects(value)
            and not self._conflicts(node)
            and not any(_has_condition(value, condition) for condition in self._pressures)
            and self._affinity_allows(node, value)
        )

    def _tolerates(self, node: Node) -> bool:
        """True if the pod tolerates the hard taints, and that of a cordoned node."""
        tolerations = self._pod.tolerations
        if any(is_untolerated(taint, tolerations, HARD_EFFECTS) for taint in node.taints):
            return False
        return not node.spec.unschedulable or is_tolerated(UNSCHEDULABLE_TAINT, tolerations)

    def _selects(self, node: Node) -> bool:
        if any(node.labels.get(key) != value for key, value in self._selector.items()):
            return False
        return self._required is None or node_selector_matches(
            self._required, node.labels, node.name
        )

    def _conflicts(self, node: KubeBatchNode) -> bool:
        """True if a host port is taken."""
        if not self._ports:
            return False
        used = {port for task in node.tasks.values() for port in host_ports(task.pod.spec)}
        return any(_is_taken(port, used) for port in self._ports)

    def _affinity_allows(self, node: KubeBatchNode, value: Node) -> bool:
        if not self._reads_affinity:
            return self._all_known
        here = [task.pod for task in node.tasks.values()]
        return satisfies_pod_affinity(self._pod, value, here, self._placed, self._nodes)


def _is_healthy(node: Node) -> bool:
    conditions = node.status.conditions
    is_well = all(c.status == _HEALTHY[c.type] for c in conditions if c.type in _HEALTHY)
    return is_well and not node.spec.unschedulable


def _has_condition(node: Node, condition: str) -> bool:
    """True for a node under this pressure; the last condition of its type counts."""
    statuses = [c.status for c in node.status.conditions if c.type == condition]
    return bool(statuses) and statuses[-1] == "True"


def _is_best_effort(pod: Pod) -> bool:
    """True if no container requests or limits cpu or memory."""
    return not any(
        name in ("cpu", "memory") and exact(quantity).unscaled > 0
        for container in pod.spec.containers
        for amounts in (container.resources.requests, container.resources.limits)
        for name, quantity in amounts.items()
    )


def _sound_selector(labels: Mapping[str, str] | None) -> Mapping[str, str]:
    """A node selector; one with a malformed label selects every node."""
    labels = labels or {}
    if any(label_key_errors(key) or label_value_errors(value) for key, value in labels.items()):
        return {}
    return labels


def _is_taken(port: Port, used: Collection[Port]) -> bool:
    ip, protocol, number = port
    if ip == WILDCARD_IP:
        return any(other[1:] == (protocol, number) for other in used)
    return port in used or (WILDCARD_IP, protocol, number) in used


def _keeps_others_away(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return bool(affinity and affinity.pod_anti_affinity and affinity.pod_anti_affinity.required)
