"""Nodes and their taints.

Source: Kubernetes core/v1 API, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from stowplan.objects.meta import Object, Value
from stowplan.objects.quantity import Quantity


class Taint(Value, frozen=True):
    """An entry of `spec.taints`."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Value, frozen=True):
    """`spec` of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = ""


class ContainerImage(Value, frozen=True):
    """An image on a node, with all its names."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeCondition(Value, frozen=True):
    """An entry of `status.conditions`."""

    type: str = ""
    status: str = ""


class NodeStatus(Value, frozen=True):
    """`status` of a node."""

    allocatable: dict[str, Quantity] = {}
    capacity: dict[str, Quantity] = {}
    images: tuple[ContainerImage, ...] = ()
    conditions: tuple[NodeCondition, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(Object, frozen=True):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def taints(self) -> tuple[Taint, ...]:
        """`spec.taints`."""
        return self.spec.taints


ZONE_LABELS = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
REGION_LABELS = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
HOSTNAME_LABEL = "kubernetes.io/hostname"


def zone_key(node: Node) -> tuple[str, str]:
    """(region, zone) of a node; the deprecated labels take precedence, "" when absent.

    Source: kube-scheduler v1.36, backend/cache/node_tree.
    """
    return zone_of_labels(node.labels)


def zone_of_labels(labels: Mapping[str, str]) -> tuple[str, str]:
    """(region, zone) by the labels of a node.

    Source: component-helpers v1.36, node/topology (GetZoneKey).
    """
    region = next((labels[k] for k in REGION_LABELS if k in labels), "")
    zone = next((labels[k] for k in ZONE_LABELS if k in labels), "")
    return region, zone


def with_ready_condition(node: Node, status: str) -> Node:
    """The node; if it has no Ready condition, a copy that has one with this status."""
    conditions = node.status.conditions
    if any(one.type == "Ready" for one in conditions):
        return node
    more = (*conditions, NodeCondition("Ready", status))
    return replace(node, status=replace(node.status, conditions=more))
