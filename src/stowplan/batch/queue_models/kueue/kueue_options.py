"""Configuration of Kueue that decides: fair sharing and feature gates.

Source: Kueue, apis/config/v1beta2, pkg/features/kube_features.go of 2026-08-22.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stowplan.objects.encoding.duration import parse

_USAGE_GATE = "AdmissionFairSharing"
GATES: Mapping[str, bool] = {
    _USAGE_GATE: True,
    "PartialAdmission": True,
    "RecomputeAssignmentUponPreemptionTargetsOverlap": True,
    "ReclaimablePods": True,
    "TASBalancedPlacement": False,
    "TASFailedNodeReplacement": True,
    "TASFailedNodeReplacementFailFast": True,
    "TASMultiLayerTopology": True,
    "TASProfileMixed": True,
    "TASRecomputeAssignmentWithinSchedulingCycle": True,
    "TASRespectNodeAffinityPreferred": False,
    "TopologyAwareScheduling": True,
    "MultiKueueOrchestratedPreemption": False,
    "ElasticJobsViaWorkloadSlices": True,
}
"""Feature gate -> default. Gates of other features change nothing here."""

USAGE = "admissionFairSharing"
HALF_LIFE, INTERVAL = "usageHalfLifeTime", "usageSamplingInterval"
USAGE_WEIGHTS = "resourceWeights"
FINAL_SHARE = "LessThanOrEqualToFinalShare"
INITIAL_SHARE = "LessThanInitialShare"
STRATEGIES = (FINAL_SHARE, INITIAL_SHARE)


@dataclass(frozen=True, slots=True)
class ResourceTransformation:
    """Requests of one resource that count as others. outputs: resource -> factor."""

    resource: str
    is_replaced: bool
    outputs: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class PodsReadyOptions:
    """All-or-nothing with ready pods. timeout_s: until all pods of an admitted workload are ready,
    else it is evicted. recovery_s: the same once a pod has failed; None: for ever. blocks: admit
    one workload at a time, once those before are ready.
    backoff_s, backoff_max_s: until it is tried again, doubled each time. requeues_max: evictions
    after which it is deactivated; None: never. by_eviction: it then waits behind those that came
    before its eviction; otherwise its creation counts."""

    timeout_s: float = 1800.0
    blocks: bool = False
    backoff_s: float = 60.0
    backoff_max_s: float = 3600.0
    requeues_max: int | None = None
    by_eviction: bool = True
    recovery_s: float | None = 1800.0


@dataclass(frozen=True, slots=True)
class UsageOptions:
    """How usage of LocalQueues counts. half_life_s: after which it counts half; 0: it does not
    count. interval_s: between two samples. weights: of resources, 1 for others."""

    half_life_s: float = 0.0
    interval_s: float = 300.0
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KueueOptions:
    """Configuration.

    strategies: of preemption under fair sharing, in order; empty: fair sharing is off. gates: that
    are on. ignores_undeclared: resources that no group covers are not counted. is_fixed: without
    the defects of the original, see `docs/kueue-queues.md`. pods_ready: None: admitted workloads
    need not have ready pods. excluded: prefixes of resources that are not counted. warnings: about
    parts of the configuration that are not read although they matter. usage: None: that of
    LocalQueues orders nothing.
    """

    strategies: tuple[str, ...] = ()
    gates: frozenset[str] = frozenset(name for name, is_on in GATES.items() if is_on)
    ignores_undeclared: bool = False
    transformations: tuple[ResourceTransformation, ...] = ()
    is_fixed: bool = False
    pods_ready: PodsReadyOptions | None = None
    excluded: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    usage: UsageOptions | None = None

    @property
    def is_fair(self) -> bool:
        """Whether fair sharing is on."""
        return bool(self.strategies)


def enabled_gates(stated: Mapping[str, bool]) -> frozenset[str]:
    """Gates that are on, with those stated in place of the defaults."""
    return frozenset(name for name, is_on in {**GATES, **stated}.items() if is_on)


def kueue_options_of(config: Mapping[str, Any], *, is_fixed: bool) -> KueueOptions:
    """Options of a configuration as a tree, which is well formed."""
    strategies: tuple[str, ...] = ()
    if "fairSharing" in config:
        strategies = tuple((config["fairSharing"] or {}).get("preemptionStrategies") or STRATEGIES)
    gates = enabled_gates(config.get("featureGates") or {})
    counts_usage = USAGE in config and _USAGE_GATE in gates
    return KueueOptions(
        strategies=strategies,
        gates=gates,
        ignores_undeclared=config.get("quotaCheckStrategy") == "IgnoreUndeclared",
        transformations=tuple(
            ResourceTransformation(
                one["input"],
                one.get("strategy") == "Replace",
                {name: float(factor) for name, factor in (one.get("outputs") or {}).items()},
            )
            for one in config.get("resourceTransformations") or ()
        ),
        is_fixed=is_fixed,
        usage=_usage_options(config[USAGE] or {}) if counts_usage else None,
    )


def _usage_options(tree: Mapping[str, Any]) -> UsageOptions:
    found = UsageOptions()
    interval = parse(str(tree.get(INTERVAL) or 0)).total_seconds()
    return UsageOptions(
        parse(str(tree.get(HALF_LIFE) or 0)).total_seconds(),
        interval or found.interval_s,
        {name: float(n) for name, n in (tree.get(USAGE_WEIGHTS) or {}).items()},
    )
