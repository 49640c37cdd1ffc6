"""Queueing hints of the plugins that read one node's labels, taints, name, ports and features.

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
"""Whether a plugin's rule admits a pod to a node."""


def taint_toleration_events(tolerates_node: NodeCheck) -> tuple[ClusterEventWithHint, ...]:
    """TaintToleration: a node that the pod tolerates now and did not before.

    tolerates_node: no hard taint is untolerated.
    """

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
    """NodeUnschedulable: a node that is schedulable, or was uncordoned.

    tolerates_unschedulable: the pod tolerates cordoned nodes.
    """

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
    """NodeAffinity: a node that the pod selects now and did not before.

    added: the node meets the required affinity of the profile. A term that cannot be parsed
    requeues the pod, unless a term that can be parsed decides.
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
    """Whether the pod selects the node; None where a term cannot be parsed."""
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
    """NodePorts: any new node, and a pod that freed a port that the pod requests."""

    def after_delete(pod: Pod, old: Pod, new: None) -> QueueingHint:
        if not is_assigned_or_nominated(old):
            return QUEUE_SKIP
        freed = NodeInfo(Node(), used_ports=wanted_ports(old))
        return queueing_hint(any(map(freed.port_conflicts, wanted_ports(pod))))

    return (on(POD, Action.DELETE, after_delete), on(NODE, Action.ADD))


def node_declared_features_events(
    required: Callable[[Pod], tuple[str, ...]],
) -> tuple[ClusterEventWithHint, ...]:
    """NodeDeclaredFeatures: a node declares other features, or the pod needs others."""

    def after_node(pod: Pod, old: Node | None, new: Node) -> QueueingHint:
        declared = None if old is None else old.status.declared_features
        return queueing_hint(declared != new.status.declared_features)

    def after_update(pod: Pod, old: Pod, new: Pod) -> QueueingHint:
        return queueing_hint(new.uid == pod.uid and required(new) != required(old))

    return (
        on(NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, after_node),
        on(POD, Action.UPDATE, after_update),
    )
