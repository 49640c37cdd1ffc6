"""Hints of the rules that look at one node's labels, taints, name, ports and features.

Source: kube-scheduler v1.36, plugins/tainttoleration, nodeunschedulable, nodeaffinity, nodename,
nodeports, nodedeclaredfeatures.
"""

from __future__ import annotations

from collections.abc import Callable

from stowplan.columns.pods.podinfo import Port
from stowplan.framework import NodeInfo
from stowplan.framework.clusterevents import (
    NODE,
    POD,
    QUEUE_POD,
    QUEUE_SKIP,
    Action,
    ClusterEventWithHint,
    QueueingHint,
    on,
)
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import node_selector_error, node_selector_matches
from stowplan.plugins.node_affinity.node_selector import required_node_selector
from stowplan.plugins.pod_hints import after_own_update, is_assigned_or_nominated, queueing_hint

NodeCheck = Callable[[Pod, Node], bool]
"""Whether a rule lets a pod onto a node, all else aside."""


def taint_toleration_events(tolerates_node: NodeCheck) -> tuple[ClusterEventWithHint, ...]:
    """TaintToleration: a node that the pod tolerates, and did not before. suits: no hard taint is
    untolerated."""

    def after_node(pod: Pod, old: Node | None, new: Node) -> QueueingHint:
        return queueing_hint(
            (old is None or not tolerates_node(pod, old)) and tolerates_node(pod, new)
        )

    return (
        on(NODE, Action.ADD | Action.UPDATE_NODE_TAINT, after_node),
        on(POD, Action.UPDATE_POD_TOLERATION, after_own_update),
    )


def node_unschedulable_events(
    tolerates_unschedulable: Callable[[Pod], bool],
) -> tuple[ClusterEventWithHint, ...]:
    """NodeUnschedulable: a node that is open, or was opened. does_not_mind: the pod tolerates
    cordoned nodes."""

    def after_node(pod: Pod, old: Node | None, new: Node) -> QueueingHint:
        was_closed = old is None or old.spec.unschedulable
        return queueing_hint(was_closed and not new.spec.unschedulable)

    def after_toleration(pod: Pod, old: Pod, new: Pod) -> QueueingHint:
        return queueing_hint(new.uid == pod.uid and tolerates_unschedulable(new))

    return (
        on(NODE, Action.ADD | Action.UPDATE_NODE_TAINT, after_node),
        on(POD, Action.UPDATE_POD_TOLERATION, after_toleration),
    )


def node_affinity_events(added: Callable[[Node], bool]) -> tuple[ClusterEventWithHint, ...]:
    """NodeAffinity: a node that the pod selects, and did not before. added: the node meets what
    the profile requires of every pod's node.

    A term that cannot be read lets the pod through, unless a term that can be read decides.
    """

    def after_node(pod: Pod, old: Node | None, new: Node) -> QueueingHint:
        if not added(new):
            return QUEUE_SKIP
        matched = _selects(pod, new)
        if matched is None:
            return QUEUE_POD
        if not matched:
            return QUEUE_SKIP
        return queueing_hint(old is None or not _selects(pod, old))

    return (on(NODE, Action.ADD | Action.UPDATE_NODE_LABEL, after_node),)


def _selects(pod: Pod, node: Node) -> bool | None:
    """Whether the pod selects the node; None where a fault keeps that from being known."""
    for key, value in (pod.spec.node_selector or {}).items():
        if node.labels.get(key) != value:
            return False
    required = required_node_selector(pod)
    if required is None:
        return True
    if node_selector_matches(required, node.labels, node.name):
        return True
    return None if node_selector_error(required) else False


def node_name_events() -> tuple[ClusterEventWithHint, ...]:
    """NodeName: any new node."""
    return (on(NODE, Action.ADD),)


def node_ports_events(
    wanted_ports: Callable[[Pod], tuple[Port, ...]],
) -> tuple[ClusterEventWithHint, ...]:
    """NodePorts: any new node, and a pod that has gone from a port that the pod wants."""

    def after_delete(pod: Pod, old: Pod, new: None) -> QueueingHint:
        if not is_assigned_or_nominated(old):
            return QUEUE_SKIP
        freed = NodeInfo(Node(), used_ports=wanted_ports(old))
        return queueing_hint(any(map(freed.port_conflicts, wanted_ports(pod))))

    return (on(POD, Action.DELETE, after_delete), on(NODE, Action.ADD))


def node_declared_features_events(
    required: Callable[[Pod], tuple[str, ...]],
) -> tuple[ClusterEventWithHint, ...]:
    """NodeDeclaredFeatures: other features of a node, or other needs of the pod itself."""

    def after_node(pod: Pod, old: Node | None, new: Node) -> QueueingHint:
        declared = None if old is None else old.status.declared_features
        return queueing_hint(declared != new.status.declared_features)

    def after_update(pod: Pod, old: Pod, new: Pod) -> QueueingHint:
        return queueing_hint(new.uid == pod.uid and required(new) != required(old))

    return (
        on(NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, after_node),
        on(POD, Action.UPDATE, after_update),
    )
