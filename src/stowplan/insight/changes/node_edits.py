"""Edits of nodes: taints, labels and cordons; and new nodes of the pools."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from stowplan.columns.nodeinfo import allocatable_amounts
from stowplan.cycle.change import Operation
from stowplan.insight.changes import edits
from stowplan.insight.changes.edits import AddNodeEdit, NodeEdit, pointer
from stowplan.insight.changes.pod_edits import taint_text
from stowplan.insight.node_pools import pool_of
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import HOSTNAME_LABEL, Node, NodeSpec, NodeStatus, Taint
from stowplan.objects.selectors import NodeSelectorRequirement
from stowplan.objects.taints import UNSCHEDULABLE_TAINT


def is_of_condition(taint: Taint) -> bool:
    """True for taints that a controller sets for a condition of the node: removing or tolerating
    one does not make the node ready."""
    return taint.key.startswith(("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"))


def is_of_fact(label: str) -> bool:
    """True for well-known labels: they say what a node is, so setting them is no remedy."""
    domain = label.partition("/")[0] if "/" in label else ""
    return domain.endswith(("kubernetes.io", "k8s.io")) and not domain.endswith(
        ("node-restriction.kubernetes.io", "node-role.kubernetes.io")
    )


# Nodes of the cluster.


def remove_taint(node: Node, taint: Taint) -> NodeEdit:
    """The node without this taint."""
    text = f"remove taint {taint_text(taint)} from node {node.name}"
    position = node.taints.index(taint)
    return NodeEdit("taint", edits.TAINT, text, node.name, partial(_untaint, taint), position)


def _untaint(taint: Taint, node: Node) -> tuple[Node, list[Operation]]:
    index = node.taints.index(taint)
    left = node.taints[:index] + node.taints[index + 1 :]
    at = pointer("spec", "taints", index)
    operations = [
        {"op": "test", "path": f"{at}/key", "value": taint.key},
        {"op": "remove", "path": at},
    ]
    return replace(node, spec=replace(node.spec, taints=left)), operations


def uncordon(node: Node) -> NodeEdit:
    """The node schedulable, without the taint of cordoned nodes."""
    return NodeEdit("uncordon", edits.UNCORDON, f"uncordon node {node.name}", node.name, _uncordon)


def _uncordon(node: Node) -> tuple[Node, list[Operation]]:
    operations: list[Operation] = [{"op": "add", "path": "/spec/unschedulable", "value": False}]
    changed = replace(node, spec=replace(node.spec, unschedulable=False))
    for taint in [t for t in node.taints if t.key == UNSCHEDULABLE_TAINT.key]:
        changed, more = _untaint(taint, changed)
        operations += more
    return changed, operations


def set_label(node: Node, key: str, value: str | None) -> NodeEdit:
    """The node with this label; None: without it."""
    text = f"remove label {key} from node {node.name}"
    if value is not None:
        text = f"label node {node.name} {key}={value}"
    return NodeEdit("label", edits.LABEL, text, node.name, partial(_set_label, key, value))


def _set_label(key: str, value: str | None, node: Node) -> tuple[Node, list[Operation]]:
    labels = {k: v for k, v in node.labels.items() if k != key}
    path = pointer("metadata", "labels", key)
    operation: Operation = {"op": "remove", "path": path}
    if value is not None:
        labels[key] = value
        operation = {"op": "add", "path": path, "value": value}
        if not node.labels:
            operation = {"op": "add", "path": "/metadata/labels", "value": labels}
    return replace(node, metadata=replace(node.metadata, labels=labels)), [operation]


def label_for(requirement: NodeSelectorRequirement) -> tuple[bool, str | None]:
    """(whether one label can meet the requirement, its value; None: no such label)."""
    values = requirement.values
    match requirement.operator:
        case "In":
            return bool(values), values[0] if values else None
        case "Exists":
            return True, ""
        case "NotIn" | "DoesNotExist":
            return True, None
        case "Gt" | "Lt" if len(values) == 1 and values[0].lstrip("-").isdecimal():
            return True, str(int(values[0]) + (1 if requirement.operator == "Gt" else -1))
    return False, None


# New nodes.


def new_nodes(nodes: Sequence[Node]) -> list[AddNodeEdit]:
    """A new node for each pool and kind of node in it, the smallest first."""
    taken = {node.name for node in nodes}
    first: dict[object, Node] = {}
    for node in nodes:
        first.setdefault(node_content(node), node)
    found = [
        AddNodeEdit(
            edits.ADD_NODE,
            pool_of(node),
            fresh_node(node, taken),
            allocatable_amounts(node),
            node.name,
        )
        for node in first.values()
    ]
    return sorted(found, key=lambda edit: _size(edit.offered))


def copies_of(edit: AddNodeEdit, count: int, taken: Collection[str]) -> list[AddNodeEdit]:
    """As many new nodes like this one. taken: names that other nodes have."""
    names = {*taken}
    found = []
    for _ in range(count):
        node = fresh_node(edit.node, names, edit.node.name.rpartition("-new-")[0])
        names.add(node.name)
        found.append(replace(edit, node=node))
    return found


def node_content(node: Node) -> object:
    """What distinguishes the nodes of a pool: labels but the host name, taints, resources."""
    labels = [item for item in node.labels.items() if item[0] != HOSTNAME_LABEL]
    labels.sort()
    return tuple(labels), node.taints, tuple(node.status.allocatable.items())


def _size(offered: dict[str, int]) -> tuple[int, int, int]:
    extended = sum(n for name, n in offered.items() if "/" in name)
    return extended, offered.get("cpu", 0), offered.get("memory", 0)


def fresh_node(node: Node, taken: set[str], base: str = "") -> Node:
    """A new node like this one: schedulable, ready and empty. base: of its name."""
    base, number = base or node.name, 1
    while f"{base}-new-{number}" in taken:
        number += 1
    name = f"{base}-new-{number}"
    labels = dict(node.labels)
    if HOSTNAME_LABEL in labels:
        labels[HOSTNAME_LABEL] = name
    taints = tuple(taint for taint in node.taints if not is_of_condition(taint))
    status = NodeStatus(
        allocatable=node.status.allocatable,
        capacity=node.status.capacity,
        declared_features=node.status.declared_features,
    )
    return Node(ObjectMeta(name=name, labels=labels), NodeSpec(taints=taints), status)


def manifest_of(node: Node) -> dict[str, object]:
    """A node as a manifest."""
    return {"apiVersion": "v1", "kind": "Node", **msgspec.to_builtins(node)}
