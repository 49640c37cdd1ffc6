"""NodeResourceTopology: the NUMA zones of a node, as an agent on the node reports them.

The object has the name of its node. Its zones are NUMA nodes, and whatever else the agent reports.

Source: k8stopologyawareschedwg/noderesourcetopology-api v0.1.2, topology/v1alpha2.
"""

from __future__ import annotations

from stowplan.objects.meta import Object, Value
from stowplan.objects.quantity import Quantity

NODE_TOPOLOGY_API_VERSION = "topology.node.k8s.io/v1alpha2"
ZONE_AMOUNTS = ("capacity", "allocatable", "available")
"""Fields of a zone's resource that are quantities."""


class NodeTopologyAttribute(Value, frozen=True):
    """An entry of `attributes`."""

    name: str = ""
    value: str = ""


class NodeZoneCost(Value, frozen=True):
    """An entry of `costs`: the distance to a zone."""

    name: str = ""
    value: int = 0


class NodeZoneResource(Value, frozen=True):
    """An entry of `resources`: what a zone has of a resource, and what is free of it."""

    name: str = ""
    capacity: Quantity = 0
    allocatable: Quantity = 0
    available: Quantity = 0


class NodeZone(Value, frozen=True):
    """An entry of `zones`. type: `Node` for a NUMA node. parent: the zone around it."""

    name: str = ""
    type: str = ""
    parent: str = ""
    costs: tuple[NodeZoneCost, ...] = ()
    attributes: tuple[NodeTopologyAttribute, ...] = ()
    resources: tuple[NodeZoneResource, ...] = ()


class NodeResourceTopology(Object, frozen=True):
    """A NodeResourceTopology. topology_policies: policy and scope of the Topology Manager in one
    word, which attributes have replaced."""

    api_version: str = NODE_TOPOLOGY_API_VERSION
    topology_policies: tuple[str, ...] = ()
    zones: tuple[NodeZone, ...] = ()
    attributes: tuple[NodeTopologyAttribute, ...] = ()
