"""Requested changes applied to the objects of a cluster.

All changes apply together; their order does not matter. First nodes are added, labelled, tainted
and cordoned, then queues and priorities change, workloads are scaled, objects deleted and
submitted, and at last nodes are drained and removed. Whatever a change names is looked for in the
cluster as it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.insight.what_if import node_changes, queue_changes, workload_changes
from stowplan.insight.what_if.budgets import BudgetIndex
from stowplan.insight.what_if.change_state import ChangedCluster, ChangeState
from stowplan.insight.what_if.owned_pods import is_of_daemon_set, is_static
from stowplan.insight.what_if.requested_changes import RequestedChange
from stowplan.insight.what_if.targets import (
    drained_nodes,
    label_change,
    node_of,
    taint_change,
)
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

NOT_OF_CLUSTER = ("config", "plugin")
"""Kinds of changes that change the scheduler, not the cluster."""


Submissions = Mapping[str, Cluster]
"""File of a `--submit` -> what it adds, as `read_addition` returns it."""


def apply_changes(
    cluster: Cluster,
    changes: Sequence[RequestedChange],
    *,
    namespace: str = "default",
    submissions: Submissions | None = None,
    staying: Mapping[str, str] | None = None,
    pods: Mapping[str, Pod] | None = None,
) -> ChangedCluster:
    """The cluster after the changes, none of which is modified. Raises InputError.

    namespace: of targets that name none. staying: pod -> the budget that keeps it on its node
    during a drain, as found by an earlier attempt. pods: those of the cluster by key, if that is
    known.
    """
    check_contradictions(cluster, changes)
    nodes = {node.name: node for node in cluster.nodes}
    leaving = {
        name
        for change in changes
        if change.kind in ("cordon", "drain", "remove-node")
        for name in _nodes_named(change, nodes)
    }
    state = ChangeState(cluster, namespace, leaving, pods)
    effects: dict[int, str] = {}
    for kinds in _PHASES:
        chosen = [(i, one) for i, one in enumerate(changes) if one.kind in kinds]
        if kinds == ("drain",):
            effects |= _drain_all(state, chosen, staying or {})
            continue
        for index, change in chosen:
            if change.kind == "submit":
                effects[index] = workload_changes.submit(state, change, submissions or {})
            else:
                effects[index] = _APPLY[change.kind](state, change)
        if kinds == ("queue",):
            queue_changes.check_queues(state, [change for _, change in chosen])
    state.found.effects = [effects.get(index, "") for index in range(len(changes))]
    state.found.cluster, state.found.pods = state.cluster(), state.pods
    return state.found


_PHASES = (
    ("add-nodes",),
    ("label",),
    ("taint",),
    ("cordon",),
    ("queue",),
    ("priority",),
    ("scale",),
    ("delete",),
    ("submit",),
    ("drain",),
    ("remove-node",),
)
_APPLY: Mapping[str, Callable[[ChangeState, RequestedChange], str]] = {
    "add-nodes": node_changes.add_nodes,
    "label": node_changes.label,
    "taint": node_changes.taint,
    "cordon": node_changes.cordon,
    "remove-node": node_changes.remove_node,
    "queue": queue_changes.change_queue,
    "priority": workload_changes.change_priority,
    "scale": workload_changes.scale,
    "delete": workload_changes.delete,
}


def check_contradictions(cluster: Cluster, changes: Sequence[RequestedChange]) -> None:
    """Raise InputError for changes that cannot apply together."""
    nodes = {node.name: node for node in cluster.nodes}
    removed: dict[str, RequestedChange] = {}
    for change in changes:
        if change.kind == "remove-node":
            name = node_of(change, change.text, nodes).name
            if name in removed:
                raise change.error(f'node "{name}" is removed twice')
            removed[name] = change
    values: dict[tuple[str, ...], RequestedChange] = {}
    for change in changes:
        for name in _nodes_named(change, nodes):
            if name in removed and removed[name] is not change:
                raise change.error(f'contradicts {removed[name].flag}: node "{name}" is removed')
        subject = _subject(change)
        if subject is None:
            continue
        earlier = values.setdefault(subject, change)
        if earlier is not change and earlier.text != change.text:
            raise change.error(f"contradicts {earlier.flag}")
        if earlier is not change and change.kind in ("scale", "delete", "submit"):
            raise change.error("is given twice")


def _nodes_named(change: RequestedChange, nodes: Mapping[str, Node]) -> Collection[str]:
    match change.kind:
        case "cordon" | "remove-node":
            return [node_of(change, change.text, nodes).name]
        case "taint":
            return [node_of(change, taint_change(change)[0], nodes).name]
        case "label":
            return [node_of(change, label_change(change)[0], nodes).name]
        case "drain":
            return [node.name for node in drained_nodes(change, nodes)]
    return ()


def _subject(change: RequestedChange) -> tuple[str, ...] | None:
    """What a change sets or deletes: two changes of it contradict each other."""
    match change.kind:
        case "scale" | "priority" | "queue":
            what = change.text.rpartition("=")[0]
            # Deleting what is scaled is a contradiction, too.
            return ("workload", what) if change.kind == "scale" else (change.kind, what)
        case "delete":
            return "workload", change.text
        case "submit":
            return change.kind, change.text
        case "label":
            node, key, _ = label_change(change)
            return change.kind, node, key
        case "taint":
            node, taint, _ = taint_change(change)
            return change.kind, node, taint.key, taint.effect
    return None


# Drains.


def _leaving(state: ChangeState, drained: Collection[str]) -> list[Pod]:
    """The pods that a drain evicts, those of an owner together: they are decided together, too."""
    groups: dict[object, list[Pod]] = {}
    for pod in state.pods.values():
        if pod.node_name not in drained or pod.is_finished or is_of_daemon_set(pod):
            continue
        if not is_static(pod) and pod.metadata.deletion_timestamp is None:
            owner = pod.controller
            key = pod.key if owner is None else (pod.namespace, owner.kind, owner.name)
            groups.setdefault(key, []).append(pod)
    return [pod for group in groups.values() for pod in group]


def _drain_all(
    state: ChangeState, changes: list[tuple[int, RequestedChange]], staying: Mapping[str, str]
) -> dict[int, str]:
    """Cordon the nodes and evict their pods as far as disruption budgets allow."""
    effects = {}
    drained: dict[str, int] = {}
    for index, change in changes:
        nodes = drained_nodes(change, state.given_nodes)
        effects[index] = f"{count_of(len(nodes), 'node')} cordoned"
        for node in nodes:
            drained.setdefault(node.name, index)
            state.nodes[node.name] = node_changes.cordoned(state.nodes[node.name])
    if not drained:
        return effects
    index_of_budgets = BudgetIndex(state.objects)
    counts: dict[int, int] = dict.fromkeys(effects, 0)
    for pod in _leaving(state, drained):
        budgets = index_of_budgets.of(pod)
        if pod.key in staying:
            state.found.blocked[pod.key] = staying[pod.key]
            continue
        closed = next((b for b in budgets if not b.status.disruptions_allowed), None)
        if closed is not None:
            state.found.blocked[pod.key] = closed.key
            continue
        counts[drained[pod.node_name]] += 1
        if budgets:
            state.found.budgets[pod.key] = tuple(budget.key for budget in budgets)
        state.create_again(pod, f"its node {pod.node_name} is drained and it has no owner")
    return {
        index: f"{text}, {count_of(counts[index], 'pod')} evicted"
        for index, text in effects.items()
    }
