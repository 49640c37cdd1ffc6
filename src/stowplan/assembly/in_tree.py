"""In-tree plugins, with their default order and weights.

Source: kube-scheduler v1.36, framework/plugins/registry and apis/config/v1/default_plugins.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from stowplan.assembly.v1_13 import V1_13
from stowplan.framework.profile import PluginUse
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
from stowplan.plugins.yoda.yoda import Yoda

_IN_ORDER: tuple[tuple[type[Any], int], ...] = (
    (SchedulingGates, 1),
    (PrioritySort, 1),
    (NodeUnschedulable, 1),
    (NodeName, 1),
    (TaintToleration, 3),
    (NodeAffinityPlugin, 2),
    (NodePorts, 1),
    (NodeResourcesFit, 1),
    (VolumeRestrictions, 1),
    (NodeVolumeLimits, 1),
    (VolumeBinding, 1),
    (VolumeZone, 1),
    (PodTopologySpread, 2),
    (InterPodAffinity, 2),
    (DynamicResources, 2),
    (DefaultPreemption, 1),
    (NodeResourcesBalancedAllocation, 1),
    (ImageLocality, 1),
    (DefaultBinder, 1),
    (NodeDeclaredFeatures, 1),
)

_SHIPPED: tuple[type[Any], ...] = (*(plugin for plugin, _ in _IN_ORDER), *V1_13, Yoda)

IN_TREE: dict[str, type[Any]] = {plugin.name: plugin for plugin in _SHIPPED}
"""Name -> class of every in-tree plugin."""

DEFAULT_PLUGINS: tuple[PluginUse, ...] = tuple(
    PluginUse(plugin.name, weight) for plugin, weight in _IN_ORDER
)
"""Default multiPoint list; its order decides which filter reports a node's refusal."""


def registry() -> Registry:
    """A new registry of the in-tree plugins; register further plugins on top."""
    return _shipped().copy()


@cache
def _shipped() -> Registry:
    # Inspecting every method of every plugin is slow, so it is done once.
    return Registry(IN_TREE.values())
