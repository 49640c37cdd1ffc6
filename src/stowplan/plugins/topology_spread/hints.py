"""Queueing hints of PodTopologySpread: pods that are counted, and nodes that are domains.

Source: kube-scheduler v1.36, plugins/podtopologyspread/plugin.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stowplan.framework.clusterevents import (
    NODE,
    POD,
    QUEUE_POD,
    QUEUE_SKIP,
    Action,
    QueueingHint,
    RegisteredEvents,
    on,
)
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import SelectorError
from stowplan.plugins.pod_hints import is_assigned_or_nominated, queueing_hint
from stowplan.plugins.topology_spread.spread_constraint import SpreadConstraint

ConstraintsOf = Callable[[Pod], Sequence[SpreadConstraint]]


def pod_topology_spread_events(constraints_of: ConstraintsOf) -> RegisteredEvents:
    """Events that PodTopologySpread registers.

    constraints_of: the hard constraints of a pod; where it raises SelectorError the pod is
    requeued.
    """

    def after_pod(pod: Pod, old: Pod | None, new: Pod | None) -> QueueingHint:
        if not all(_counts_for(pod, one) for one in (old, new) if one is not None):
            return QUEUE_SKIP
        try:
            constraints = constraints_of(pod)
        except SelectorError:
            return QUEUE_POD
        if old is not None and new is not None:
            return _after_pod_update(pod, old, new, constraints)
        changed = new if new is not None else old
        return queueing_hint(
            changed is not None and any(one.matches(changed.labels) for one in constraints)
        )

    def after_node(pod: Pod, old: Node | None, new: Node | None) -> QueueingHint:
        try:
            constraints = constraints_of(pod)
        except SelectorError:
            return QUEUE_POD
        keys = [one.topology_key for one in constraints]
        was = old is not None and all(key in old.labels for key in keys)
        now = new is not None and all(key in new.labels for key in keys)
        if old is None or new is None or was != now:
            return queueing_hint(was or now)
        moved = any(old.labels.get(key, "") != new.labels.get(key, "") for key in keys)
        return queueing_hint(now and (moved or old.taints != new.taints))

    of_pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION | Action.DELETE
    of_nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
    return (on(POD, of_pods, after_pod), on(NODE, of_nodes, after_node))


def _counts_for(pod: Pod, other: Pod) -> bool:
    """True for the pod itself and for assigned pods of its namespace."""
    return other.uid == pod.uid or (
        is_assigned_or_nominated(other) and other.namespace == pod.namespace
    )


def _after_pod_update(
    pod: Pod, old: Pod, new: Pod, constraints: Sequence[SpreadConstraint]
) -> QueueingHint:
    """The pod tolerates other taints, or another pod is counted now that was not, or the
    reverse."""
    tolerates_other = new.uid == pod.uid and old.tolerations != new.tolerations
    if tolerates_other and any(one.honors_taints for one in constraints):
        return QUEUE_POD
    if old.labels == new.labels:
        return QUEUE_SKIP
    return queueing_hint(
        any(one.matches(old.labels) != one.matches(new.labels) for one in constraints)
    )
