"""Hints of the rules that look at one node's labels, taints, name, ports and features.

Source: kube-scheduler v1.36, plugins/tainttoleration, nodeunschedulable, nodeaffinity, nodename,
nodeports, nodedeclaredfeatures.
"""

from __future__ import annotations

from collections.abc import Callable

from stowplan.columns.podinfo import Port
from stowplan.framework import NodeInfo
from stowplan.framework.clusterevents import (
    NODE,
    POD,
    QUEUE_POD,
    SKIP_POD,
    Action,
    EventWithHint,
    QueueingHint,
    on,
)
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import node_selector_error, node_selector_matches
from stowplan.plugins.hints.pods import has_a_node, own_update, queue_if
from stowplan.plugins.node_selection import required_selector

Suits = Callable[[Pod, Node], bool]
"""Whether a rule lets a pod onto a node, all else aside."""


def taint_toleration_events(suits: Suits) -> tuple[EventWithHint, ...]:
    """TaintToleration: a node that the pod tolerates, and did not before. suits: no hard taint is
    untolerated."""

    def after_node(pod: Pod, old: Node | None, new: Node) -> QueueingHint:
        return queue_if((old is None or not suits(pod, old)) and suits(pod, new))

    return (
        on(NODE, Action.ADD | Action.UPDATE_NODE_TAINT, after_node),
        on(POD, Action.UPDATE_POD_TOLERATION, own_update),
    )


def node_unschedulable_events(does_not_mind: Callable[[Pod], bool]) -> tuple[EventWithHint, ...]:
    """NodeUnschedulable: a node that is open, or was opened. does_not_mind: the pod tolerates
    cordoned nodes."""

    def after_node(pod: Pod, old: Node | None, new: Node) -> QueueingHint:
        was_closed = old is None or old.spec.unschedulable
        return queue_if(was_closed and not new.spec.unschedulable)

    def after_toleration(pod: Pod, old: Pod, new: Pod) -> QueueingHint:
        return queue_if(new.uid == pod.uid and does_not_mind(new))

    return (
        on(NODE, Action.ADD | Action.UPDATE_NODE_TAINT, after_node),
        on(POD, Action.UPDATE_POD_TOLERATION, after_toleration),
    )


def node_affinity_events(added: Callable[[Node], bool]) -> tuple[EventWithHint, ...]:
    """NodeAffinity: a node that the pod selects, and did not before. added: the node meets what
    the profile requires of every pod's node.

    A term that cannot be read lets the pod through, unless a term that can be read decides.
    """

    def after_node(pod: Pod, old: Node | None, new: Node) -> QueueingHint:
        if not added(new):
            return SKIP_POD
        matched = _selects(pod, new)
        if matched is None:
            return QUEUE_POD
        if not matched:
            return SKIP_POD
        return queue_if(old is None or not _selects(pod, old))

    return (on(NODE, Action.ADD | Action.UPDATE_NODE_LABEL, after_node),)


def _selects(pod: Pod, node: Node) -> bool | None:
    """Whether the pod selects the node; None where a fault keeps that from being known."""
    for key, value in (pod.spec.node_selector or {}).items():
        if node.labels.get(key) != value:
            return False
    required = required_selector(pod)
    if required is None:
        return True
    if node_selector_matches(required, node.labels, node.name):
        return True
    return None if node_selector_error(required) else False


def node_name_events() -> tuple[EventWithHint, ...]:
    """NodeName: any new node."""
    return (on(NODE, Action.ADD),)


def node_ports_events(
    wanted_ports: Callable[[Pod], tuple[Port, ...]],
) -> tuple[EventWithHint, ...]:
    """NodePorts: any new node, and a pod that has gone from a port that the pod wants."""

    def after_delete(pod: Pod, old: Pod, new: None) -> QueueingHint:
        if not has_a_node(old):
            return SKIP_POD
        freed = NodeInfo(Node(), used_ports=wanted_ports(old))
        return queue_if(any(map(freed.port_conflicts, wanted_ports(pod))))

    return (on(POD, Action.DELETE, after_delete), on(NODE, Action.ADD))


def node_declared_features_events(
    required: Callable[[Pod], tuple[str, ...]],
) -> tuple[EventWithHint, ...]:
    """NodeDeclaredFeatures: other features of a node, or other needs of the pod itself."""

    def after_node(pod: Pod, old: Node | None, new: Node) -> QueueingHint:
        declared = None if old is None else old.status.declared_features
        return queue_if(declared != new.status.declared_features)

    def after_update(pod: Pod, old: Pod, new: Pod) -> QueueingHint:
        return queue_if(new.uid == pod.uid and required(new) != required(old))

    return (
        on(NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, after_node),
        on(POD, Action.UPDATE, after_update),
    )
