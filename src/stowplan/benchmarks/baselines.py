"""kube-scheduler's throughput in pods per second, by benchmark case, with sources."""

from __future__ import annotations

from typing import NamedTuple

MEASURED = "measured: kube-scheduler 1.36.2, two shared cores, no API server, sampling nodes"
PUBLISHED = "published: threshold of scheduler_perf, kube-scheduler 1.36.2, with its API server"


class Baseline(NamedTuple):
    """A throughput to compare with."""

    pods_per_s: float
    source: str


_MEASURED = {"basic": 887, "affinity": 316, "spread": 378, "anti": 434, "preferred": 384}

# Where the thresholds with and without queueing hints differ, the higher one.
_PUBLISHED = {
    "SchedulingBasic": 270,
    "SchedulingDaemonset": 390,
    "SchedulingSecrets": 260,
    "SchedulingPodAntiAffinity": 60,
    "SchedulingPodMatchingAntiAffinity": 600,
    "SchedulingPodAffinity": 35,
    "SchedulingPreferredPodAffinity": 90,
    "SchedulingPreferredPodAntiAffinity": 90,
    "SchedulingNodeAffinity": 220,
    "MixedSchedulingBasePod": 140,
    "SchedulingRequiredPodAntiAffinityWithNSSelector": 24,
    "SchedulingPreferredAntiAffinityWithNSSelector": 55,
    "SchedulingRequiredPodAffinityWithNSSelector": 35,
    "SchedulingPreferredAffinityWithNSSelector": 90,
    "SchedulingGatedPodsWithPodAffinityImpactForThroughput": 110,
    "TopologySpreading": 85,
    "PreferredTopologySpreading": 125,
    "SchedulingWithNodeInclusionPolicy": 68,
    "PreemptionAsync": 160,
    "Unschedulable": 170,
    "SchedulingWithMixedChurn": 265,
    "SchedulingWhileGated": 130,
    "SchedulingInTreePVs": 90,
    "SchedulingMigratedInTreePVs": 35,
    "SchedulingCSIPVs": 48,
    "SchedulingWithResourceClaimTemplate": 56,
    "SteadyStateClusterResourceClaimTemplate-empty": 64,
    "SteadyStateClusterResourceClaimTemplate-half": 70,
    "SteadyStateClusterResourceClaimTemplate-full": 60,
}

BASELINES = {
    **{shape: Baseline(rate, MEASURED) for shape, rate in _MEASURED.items()},
    **{shape: Baseline(rate, PUBLISHED) for shape, rate in _PUBLISHED.items()},
}
"""Case -> throughput, where published."""
