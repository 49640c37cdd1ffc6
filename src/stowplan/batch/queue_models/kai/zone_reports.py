"""The NUMA zones of nodes, from reports: those of recorded cases, and NodeResourceTopology objects.

Only zones of the type `Node` count, as for the kubelet. Policy and scope come from attributes, else
from the older `topologyPolicies`. Differs: an object with an amount that cannot be read counts as
none; KAI's client refuses it.

Source: KAI-Scheduler, pkg/scheduler/api/node_info/numa_topology.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from stowplan.batch.queue_models.kai.state.kai_amount import Amount, ResourceIndex
from stowplan.batch.queue_models.kai.state.numa_zones import (
    NumaPolicy,
    NumaScope,
    NumaTopology,
    NumaZone,
    ZoneRules,
)
from stowplan.objects.kai.node_topology import NodeResourceTopology, NodeZone
from stowplan.objects.quantity import Quantity, QuantityError

ZONE_TYPE = "Node"
"""`type` of a zone that is a NUMA node."""
POLICY_ATTRIBUTE, SCOPE_ATTRIBUTE = "topologyManagerPolicy", "topologyManagerScope"
_NONE = NumaPolicy.NONE, NumaScope.CONTAINER
_POLICIES = {
    "best-effort": NumaPolicy.BEST_EFFORT,
    "restricted": NumaPolicy.RESTRICTED,
    "single-numa-node": NumaPolicy.SINGLE_NUMA_NODE,
}
_OLDER = {
    "SingleNUMANodePodLevel": (NumaPolicy.SINGLE_NUMA_NODE, NumaScope.POD),
    "SingleNUMANodeContainerLevel": (NumaPolicy.SINGLE_NUMA_NODE, NumaScope.CONTAINER),
    "RestrictedPodLevel": (NumaPolicy.RESTRICTED, NumaScope.POD),
    "Restricted": (NumaPolicy.RESTRICTED, NumaScope.CONTAINER),
    "RestrictedContainerLevel": (NumaPolicy.RESTRICTED, NumaScope.CONTAINER),
    "BestEffortPodLevel": (NumaPolicy.BEST_EFFORT, NumaScope.POD),
    "BestEffort": (NumaPolicy.BEST_EFFORT, NumaScope.CONTAINER),
    "BestEffortContainerLevel": (NumaPolicy.BEST_EFFORT, NumaScope.CONTAINER),
}
"""Entry of `topologyPolicies` -> policy and scope."""


class KaiZoneReport(msgspec.Struct, frozen=True):
    """A NUMA zone. Amounts as in a session: cpu in milli-cpu, memory in bytes."""

    id: str
    allocatable: Mapping[str, float] = {}
    available: Mapping[str, float] = {}


class KaiZonesReport(msgspec.Struct, frozen=True):
    """The NUMA zones of a node, with policy and scope of its Topology Manager."""

    policy: NumaPolicy = NumaPolicy.NONE
    scope: NumaScope = NumaScope.CONTAINER
    zones: tuple[KaiZoneReport, ...] = ()


def zones_of_report(report: KaiZonesReport | None, index: ResourceIndex) -> NumaTopology | None:
    """The zones of a recorded case's report; resources that neither nodes nor pods name are left
    out. None without zones."""
    if report is None or not report.zones:
        return None
    zones = [
        NumaZone(
            zone.id, _zone_amount(zone.allocatable, index), _zone_amount(zone.available, index)
        )
        for zone in report.zones
    ]
    named = {name for zone in report.zones for name in (*zone.allocatable, *zone.available)}
    return NumaTopology(report.policy, report.scope, zones, _aware(named, index, frozenset()))


def zones_of_object(
    found: NodeResourceTopology, index: ResourceIndex, rules: ZoneRules
) -> NumaTopology | None:
    """The zones of an object; the same resources are left out, and those that rules say. None
    without zones of NUMA nodes."""
    own = [zone for zone in found.zones if zone.type == ZONE_TYPE]
    if not own:
        return None
    try:
        zones = [_zone(zone, index) for zone in own]
    except QuantityError:
        return None
    policy, scope = policy_and_scope(found)
    named = {one.name for zone in own for one in zone.resources}
    aware = _aware(named, index, rules.ignored)
    return NumaTopology(policy, scope, zones, aware, rules.trusts_available)


def policy_and_scope(found: NodeResourceTopology) -> tuple[NumaPolicy, NumaScope]:
    """Policy and scope of the Topology Manager of an object's node."""
    attributes = {one.name: one.value for one in found.attributes}
    policy = attributes.get(POLICY_ATTRIBUTE)
    if not policy:
        older = found.topology_policies
        return _OLDER.get(older[0], _NONE) if older else _NONE
    is_pod = attributes.get(SCOPE_ATTRIBUTE) == "pod"
    scope = NumaScope.POD if is_pod else NumaScope.CONTAINER
    return _POLICIES.get(policy, NumaPolicy.NONE), scope


def _zone(zone: NodeZone, index: ResourceIndex) -> NumaZone:
    known = [one for one in zone.resources if index.has(one.name)]
    allocatable: dict[str, Quantity] = {one.name: one.allocatable for one in known}
    available: dict[str, Quantity] = {one.name: one.available for one in known}
    return NumaZone(zone.name, index.read(allocatable), index.read(available))


def _aware(named: Iterable[str], index: ResourceIndex, ignored: Iterable[str]) -> dict[int, str]:
    """Place -> name of the resources that are aligned."""
    left_out = {index.place_of(name) for name in ignored if index.has(name)}
    found = {index.place_of(name): name for name in sorted(named) if index.has(name)}
    return {place: name for place, name in found.items() if place not in left_out}


def _zone_amount(amounts: Mapping[str, float], index: ResourceIndex) -> Amount:
    amount = index.empty()
    for name, value_there in amounts.items():
        if index.has(name):
            amount[index.place_of(name)] += value_there
    return amount
