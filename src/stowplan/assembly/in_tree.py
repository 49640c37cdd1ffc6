"""The in-tree plugins, and the order in which they run by default.

Source: kube-scheduler v1.36, framework/plugins/registry and apis/config/v1/default_plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from stowplan.assembly.plugin_classes import PluginClasses
from stowplan.assembly.v1_13 import V1_13
from stowplan.framework.feature_gates import FeatureGates
from stowplan.framework.profile import PluginUse
from stowplan.framework.runtime.declarations import declaration_of
from stowplan.framework.runtime.registry import Registry
from stowplan.plugins.default_binder import DefaultBinder
from stowplan.plugins.devices.dynamic_resources import DynamicResources
from stowplan.plugins.image_locality import ImageLocality
from stowplan.plugins.node_affinity.node_affinity import NodeAffinityPlugin
from stowplan.plugins.node_declared_features import NodeDeclaredFeatures
from stowplan.plugins.node_name import NodeName
from stowplan.plugins.node_ports import NodePorts
from stowplan.plugins.node_unschedulable import NodeUnschedulable
from stowplan.plugins.pod_affinity.inter_pod_affinity import InterPodAffinity
from stowplan.plugins.preemption.default_preemption import DefaultPreemption
from stowplan.plugins.priority_sort import PrioritySort
from stowplan.plugins.resources.balanced_allocation import NodeResourcesBalancedAllocation
from stowplan.plugins.resources.fit import NodeResourcesFit
from stowplan.plugins.scheduling_gates import SchedulingGates
from stowplan.plugins.taint_toleration import TaintToleration
from stowplan.plugins.topology_spread.pod_topology_spread import PodTopologySpread
from stowplan.plugins.volumes.node_volume_limits import NodeVolumeLimits
from stowplan.plugins.volumes.volume_binding import VolumeBinding
from stowplan.plugins.volumes.volume_restrictions import VolumeRestrictions
from stowplan.plugins.volumes.volume_zone import VolumeZone

_IN_ORDER: tuple[type[Any], ...] = (
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinityPlugin,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    NodeDeclaredFeatures,
)

_OF_GROUPS: dict[str, str] = {
    "GangScheduling": "pod_groups.gang_scheduling",
    "TopologyPlacementGenerator": "pod_groups.topology_placement_generator",
    "PodGroupPodsCount": "pod_groups.pod_group_pods_count",
}
_GANG_SCHEDULING, *_OF_TOPOLOGY = _OF_GROUPS

_IMPORTED_WHEN_NAMED: dict[str, str] = {
    **_OF_GROUPS,
    **V1_13,
    "yoda": "yoda.yoda:Yoda",
    "GpuShare": "gpu_share.gpu_share",
    "GpuTopology": "gpu_share.scores.gpu_topology",
}

IN_TREE: Mapping[str, type[Any]] = PluginClasses(
    {plugin.name: plugin for plugin in _IN_ORDER}, _IMPORTED_WHEN_NAMED, "stowplan.plugins"
)
"""Name -> class of every in-tree plugin. Those outside the default list are imported when they are
asked for: a start with the default profile needs none of them."""

DEFAULT_PLUGINS: tuple[PluginUse, ...] = tuple(
    PluginUse(plugin.name, declaration_of(plugin).weight) for plugin in _IN_ORDER
)
"""Default multiPoint list; its order decides which filter reports a node's refusal."""


def default_plugins(gates: FeatureGates | None = None) -> tuple[PluginUse, ...]:
    """DEFAULT_PLUGINS with the plugins of pod groups that feature gates switch on, at the end."""
    gates = gates or FeatureGates()
    found = list(DEFAULT_PLUGINS)
    if gates.gang_scheduling:
        found.append(PluginUse(_GANG_SCHEDULING))
    if gates.topology_aware_workload_scheduling:
        found += map(PluginUse, _OF_TOPOLOGY)
    return tuple(found)


NODEORDER_WEIGHTS: dict[str, str] = {
    NodeResourcesFit.name: "least_requested",
    NodeResourcesBalancedAllocation.name: "balanced_resource",
    NodeAffinityPlugin.name: "node_affinity",
    InterPodAffinity.name: "pod_affinity",
}
"""Plugin -> the weight of kube-batch's `nodeorder` that replaces its own in sessions."""


def registry() -> Registry:
    """A new registry of the in-tree plugins; register further plugins on top."""
    return _shipped().copy()


@cache
def _shipped() -> Registry:
    # Inspecting every method of a plugin is slow, so it is done once.
    return Registry(shipped=IN_TREE)
