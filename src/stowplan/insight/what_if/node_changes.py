"""Changes of nodes: new ones of a pool, labels, taints, cordons, and nodes that go."""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.apis.apps.daemon_pods import pin_to_node, target_node
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.counts import count_of
from stowplan.inputs.workloads.scaled_workload import created_pods, expanded_pods
from stowplan.insight.changes.node_edits import fresh_node, node_content
from stowplan.insight.node_pools import pool_of
from stowplan.insight.what_if.change_state import ChangeState
from stowplan.insight.what_if.owned_pods import is_of_daemon_set
from stowplan.insight.what_if.requested_changes import RequestedChange
from stowplan.insight.what_if.targets import count_after, label_change, node_of, taint_change
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import label_key_errors, label_value_errors
from stowplan.objects.taints import UNSCHEDULABLE_TAINT, is_tolerated
from stowplan.objects.workload import DaemonSet


def cordoned(node: Node) -> Node:
    """The node with `spec.unschedulable`."""
    return replace(node, spec=replace(node.spec, unschedulable=True))


def cordon(state: ChangeState, change: RequestedChange) -> str:
    """Cordon a node."""
    name = node_of(change, change.text, state.given_nodes).name
    state.nodes[name] = cordoned(state.nodes[name])
    return f"node {name} cordoned"


def label(state: ChangeState, change: RequestedChange) -> str:
    """Set or remove a label of a node."""
    name, key, value = label_change(change)
    name = node_of(change, name, state.given_nodes).name
    errors = (*label_key_errors(key), *(label_value_errors(value) if value else ()))
    if errors:
        raise change.error("; ".join(errors))
    node = state.nodes[name]
    if value is None and key not in node.labels:
        raise change.error(f'label "{key}" not found on node {name}')
    labels = {k: v for k, v in node.labels.items() if k != key}
    if value is not None:
        labels[key] = value
    state.nodes[name] = replace(node, metadata=replace(node.metadata, labels=labels))
    return f"label {key} removed from node {name}" if value is None else f"node {name} labelled"


def taint(state: ChangeState, change: RequestedChange) -> str:
    """Add or remove a taint; NoExecute evicts the pods that do not tolerate it."""
    name, new, removes = taint_change(change)
    name = node_of(change, name, state.given_nodes).name
    node = state.nodes[name]

    kept = tuple(
        one for one in node.taints if one.key != new.key or new.effect not in ("", one.effect)
    )
    if removes and len(kept) == len(node.taints):
        raise change.error(f'taint "{new.key}" not found on node {name}')
    taints = kept if removes else (*kept, new)
    unschedulable = node.spec.unschedulable
    if removes and new.key == UNSCHEDULABLE_TAINT.key:
        unschedulable = False
    state.nodes[name] = replace(
        node, spec=replace(node.spec, taints=taints, unschedulable=unschedulable)
    )
    if removes:
        return f"taint {new.key} removed from node {name}"
    evicted = []
    if new.effect == "NoExecute":
        evicted = [
            pod for pod in state.on_node(name) if not is_tolerated(new, pod.spec.tolerations)
        ]
        for pod in evicted:
            state.create_again(pod, f"it does not tolerate taint {new.key} and has no owner")
    more = f", {count_of(len(evicted), 'pod')} evicted" if evicted else ""
    return f"node {name} tainted{more}"


def remove_node(state: ChangeState, change: RequestedChange) -> str:
    """Remove a node; its pods are created again by their owners."""
    name = node_of(change, change.text, state.given_nodes).name
    leaving = state.on_node(name)
    for pod in leaving:
        if pod.metadata.deletion_timestamp is not None:
            state.remove_pod(pod)
            continue
        state.create_again(pod, f"its node {name} is removed and it has no owner")
    for pod in list(state.pods.values()):
        if is_of_daemon_set(pod) and not pod.node_name and target_node(pod) == name:
            state.remove_pod(pod)
    del state.nodes[name]
    return f"node {name} removed, with {count_of(len(leaving), 'pod')}"


def add_nodes(state: ChangeState, change: RequestedChange) -> str:
    """Add nodes like those of a pool that stay, each kind of node in turn; with pods of
    DaemonSets."""
    pool, number = count_after(change, 1)
    members = [node for node in state.given_nodes.values() if pool_of(node) == pool]
    if not members:
        pools = list(dict.fromkeys(pool_of(node) for node in state.given_nodes.values()))
        hint = did_you_mean(pool, pools)
        known = ", ".join(pools[:10]) + (" ..." if len(pools) > 10 else "")
        raise change.error(
            f"no node is of pool {pool!r}: expected one of {known}" + (f"; {hint}" if hint else "")
        )
    kinds: dict[object, Node] = {}
    # Where a zone is drained, the pool grows in the others.
    for node in [one for one in members if one.name not in state.leaving] or members:
        kinds.setdefault(node_content(node), node)
    patterns = list(kinds.values())
    added = []
    for index in range(number):
        pattern = patterns[index % len(patterns)]
        node = fresh_node(pattern, set(state.nodes))
        state.nodes[node.name] = node
        added.append((pattern, node))
    _add_daemon_pods(state, added)
    names = [node.name for _, node in added]
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
    return f"{count_of(number, 'node')} of pool {pool} added: {listed}"


def _add_daemon_pods(state: ChangeState, added: list[tuple[Node, Node]]) -> None:
    """The pods of DaemonSets for new nodes: by the DaemonSets of the input, else like those of the
    node that a new one is modelled on."""
    sets = [one for one in state.given.objects if isinstance(one, DaemonSet)]
    nodes = [*state.given_nodes.values(), *(node for _, node in added)]
    for one in sets:
        wanted = created_pods(one, state.given, nodes)
        new = [pod for key, pod in wanted.items() if key not in state.pods]
        state.insert(new, expanded_pods(one, state.given), one)
    known = {(one.namespace, one.name) for one in sets}
    by_node: dict[str, list[tuple[Pod, str]]] = {}
    for pattern, node in added:
        if pattern.name not in by_node:
            by_node[pattern.name] = [
                (pod, pod.controller.name)
                for pod in state.on_node(pattern.name)
                if is_of_daemon_set(pod) and pod.controller is not None
            ]
        for pod, owner in by_node[pattern.name]:
            if (pod.namespace, owner) not in known:
                another = state.copies.another(pod, f"{owner}-{node.name}")
                # They come with the node: whatever waits for it arrives later.
                spec = replace(pin_to_node(another.spec, node), node_name=node.name)
                another = replace(another, spec=spec)
                state.pods[another.key] = another
