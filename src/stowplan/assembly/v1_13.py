"""Rules of Kubernetes 1.13 for Policy files: predicates, then priorities."""

from __future__ import annotations

from typing import Any

from stowplan.plugins.v1_13.node_label import CheckNodeLabelPresence, NodeLabelPriority
from stowplan.plugins.v1_13.predicates.check_node_condition import (
    CheckNodeCondition,
    CheckNodeDiskPressure,
    CheckNodeMemoryPressure,
    CheckNodePIDPressure,
    CheckNodeUnschedulable,
)
from stowplan.plugins.v1_13.predicates.check_service_affinity import CheckServiceAffinity
from stowplan.plugins.v1_13.predicates.check_volume_binding import CheckVolumeBinding
from stowplan.plugins.v1_13.predicates.general_predicates import (
    GeneralPredicates,
    HostName,
    PodFitsHostPorts,
    PodFitsPorts,
)
from stowplan.plugins.v1_13.predicates.match_inter_pod_affinity import MatchInterPodAffinity
from stowplan.plugins.v1_13.predicates.match_node_selector import MatchNodeSelector
from stowplan.plugins.v1_13.predicates.max_csi_volume_count import MaxCSIVolumeCountPred
from stowplan.plugins.v1_13.predicates.max_pd_volume_count import (
    MaxAzureDiskVolumeCount,
    MaxEBSVolumeCount,
    MaxGCEPDVolumeCount,
)
from stowplan.plugins.v1_13.predicates.no_disk_conflict import NoDiskConflict
from stowplan.plugins.v1_13.predicates.no_volume_zone_conflict import NoVolumeZoneConflict
from stowplan.plugins.v1_13.predicates.pod_fits_resources import PodFitsResources
from stowplan.plugins.v1_13.priorities.balanced_resource_allocation import (
    BalancedResourceAllocation,
)
from stowplan.plugins.v1_13.priorities.image_locality_priority import ImageLocalityPriority
from stowplan.plugins.v1_13.priorities.inter_pod_affinity_priority import InterPodAffinityPriority
from stowplan.plugins.v1_13.priorities.node_affinity_priority import NodeAffinityPriority
from stowplan.plugins.v1_13.priorities.node_prefer_avoid_pods import NodePreferAvoidPodsPriority
from stowplan.plugins.v1_13.priorities.resource_priorities import (
    EqualPriority,
    LeastRequestedPriority,
    MostRequestedPriority,
    RequestedToCapacityRatioPriority,
    ResourceLimitsPriority,
)
from stowplan.plugins.v1_13.priorities.selector_spread import (
    SelectorSpreadPriority,
    ServiceSpreadingPriority,
)
from stowplan.plugins.v1_13.priorities.service_anti_affinity import ServiceAntiAffinityPriority
from stowplan.plugins.v1_13.taint_toleration import PodToleratesNodeTaints, TaintTolerationPriority

V1_13: tuple[type[Any], ...] = (
    CheckNodeCondition,
    CheckNodeUnschedulable,
    GeneralPredicates,
    HostName,
    PodFitsHostPorts,
    PodFitsPorts,
    MatchNodeSelector,
    PodFitsResources,
    NoDiskConflict,
    PodToleratesNodeTaints,
    CheckNodeLabelPresence,
    CheckServiceAffinity,
    MaxEBSVolumeCount,
    MaxGCEPDVolumeCount,
    MaxCSIVolumeCountPred,
    MaxAzureDiskVolumeCount,
    CheckVolumeBinding,
    NoVolumeZoneConflict,
    CheckNodeMemoryPressure,
    CheckNodePIDPressure,
    CheckNodeDiskPressure,
    MatchInterPodAffinity,
    SelectorSpreadPriority,
    ServiceSpreadingPriority,
    InterPodAffinityPriority,
    LeastRequestedPriority,
    MostRequestedPriority,
    RequestedToCapacityRatioPriority,
    BalancedResourceAllocation,
    NodePreferAvoidPodsPriority,
    NodeAffinityPriority,
    TaintTolerationPriority,
    ImageLocalityPriority,
    EqualPriority,
    ResourceLimitsPriority,
    NodeLabelPriority,
    ServiceAntiAffinityPriority,
)
