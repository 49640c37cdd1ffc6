"""Names that a Policy file may use, the provider's lists, and the order of predicates.

Source: kube-scheduler v1.13, scheduler/algorithmprovider/defaults, algorithm/predicates (ordering)
and features/kube_features.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from stowplan.framework.feature_gates import FeatureGateSet

DEFAULT_PROVIDER = "DefaultProvider"
CLUSTER_AUTOSCALER_PROVIDER = "ClusterAutoscalerProvider"
PROVIDERS = (DEFAULT_PROVIDER, CLUSTER_AUTOSCALER_PROVIDER)

PREDICATE_ORDER = (
    "CheckNodeCondition", "CheckNodeUnschedulable", "GeneralPredicates", "HostName",
    "PodFitsHostPorts", "MatchNodeSelector", "PodFitsResources", "NoDiskConflict",
    "PodToleratesNodeTaints", "PodToleratesNodeNoExecuteTaints", "CheckNodeLabelPresence",
    "CheckServiceAffinity", "MaxEBSVolumeCount", "MaxGCEPDVolumeCount", "MaxCSIVolumeCountPred",
    "MaxAzureDiskVolumeCount", "CheckVolumeBinding", "NoVolumeZoneConflict",
    "CheckNodeMemoryPressure", "CheckNodePIDPressure", "CheckNodeDiskPressure",
    "MatchInterPodAffinity",
)  # fmt: skip
"""Call order of predicates; a name that is not listed never runs."""

_CONDITIONS = (
    "CheckNodeCondition",
    "CheckNodeMemoryPressure",
    "CheckNodeDiskPressure",
    "CheckNodePIDPressure",
)
_BY_NAME_ONLY = (
    "PodFitsPorts",
    "PodFitsHostPorts",
    "PodFitsResources",
    "HostName",
    "MatchNodeSelector",
)
_PROVIDED = (
    "NoVolumeZoneConflict", "MaxEBSVolumeCount", "MaxGCEPDVolumeCount", "MaxAzureDiskVolumeCount",
    "MaxCSIVolumeCountPred", "MatchInterPodAffinity", "NoDiskConflict", "GeneralPredicates",
    "PodToleratesNodeTaints", "CheckVolumeBinding",
)  # fmt: skip
_CORDONED = "CheckNodeUnschedulable"
_TAINTS = "PodToleratesNodeTaints"

_PRIORITIES: Mapping[str, int] = {
    "SelectorSpreadPriority": 1,
    "InterPodAffinityPriority": 1,
    "LeastRequestedPriority": 1,
    "BalancedResourceAllocation": 1,
    "NodePreferAvoidPodsPriority": 10000,
    "NodeAffinityPriority": 1,
    "TaintTolerationPriority": 1,
    "ImageLocalityPriority": 1,
}
_PRIORITIES_BY_NAME_ONLY = (
    "ServiceSpreadingPriority",
    "EqualPriority",
    "MostRequestedPriority",
    "RequestedToCapacityRatioPriority",
)
_LEAST, _MOST = "LeastRequestedPriority", "MostRequestedPriority"
_LIMITS = "ResourceLimitsPriority"
_NEEDS: Mapping[str, str] = {
    "CheckNodeLabelPresence": "labelsPresence",
    "CheckServiceAffinity": "serviceAffinity",
    "NodeLabelPriority": "labelPreference",
    "ServiceAntiAffinityPriority": "serviceAntiAffinity",
}


class PolicyGates(FeatureGateSet, frozen=True, rename="pascal"):
    """Feature gates of 1.13 that its predicates and priorities read."""

    taint_nodes_by_condition: bool = True
    attach_volume_limit: bool = True
    resource_limits_priority_function: bool = False
    balance_attached_node_volumes: bool = False


def provided_predicates(gates: PolicyGates) -> tuple[str, ...]:
    """Predicates of every provider."""
    by_condition = gates.taint_nodes_by_condition
    return (*_PROVIDED, _CORDONED) if by_condition else (*_PROVIDED, *_CONDITIONS)


def known_predicates(gates: PolicyGates) -> tuple[str, ...]:
    """Predicates that need no argument."""
    return (*provided_predicates(gates), *_BY_NAME_ONLY)


def mandatory_predicates(gates: PolicyGates) -> tuple[str, ...]:
    """Predicates that always run."""
    return (_TAINTS, _CORDONED) if gates.taint_nodes_by_condition else _CONDITIONS[:1]


def provided_priorities(gates: PolicyGates, provider: str) -> dict[str, int]:
    """Priorities of a provider, with their weights."""
    weights = dict(_PRIORITIES)
    if provider == CLUSTER_AUTOSCALER_PROVIDER:
        weights[_MOST] = weights.pop(_LEAST)
    if gates.resource_limits_priority_function:
        weights[_LIMITS] = 1
    return weights


def known_priorities(gates: PolicyGates) -> tuple[str, ...]:
    """Priorities that need no argument."""
    limits = (_LIMITS,) if gates.resource_limits_priority_function else ()
    return (*_PRIORITIES, *_PRIORITIES_BY_NAME_ONLY, *limits)


def gate_behind(name: str, gates: PolicyGates) -> str:
    """Why a name of 1.13 is not available, "" for a name that 1.13 does not have."""
    if name in _CONDITIONS and gates.taint_nodes_by_condition:
        return "with the gate TaintNodesByCondition, taints replace node conditions"
    if name == _CORDONED and not gates.taint_nodes_by_condition:
        return "without the gate TaintNodesByCondition, CheckNodeCondition checks it"
    if name == _LIMITS:
        return "it needs the gate ResourceLimitsPriorityFunction"
    if name in _NEEDS:
        return f"it needs an argument with {_NEEDS[name]}"
    return ""
