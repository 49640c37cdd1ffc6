"""Replicas that a resource metric asks for.

Amounts are int: thousandths of a unit (milli-CPU, thousandths of a byte), as in the original.

Differs: a utilization over `UTILIZATION_MAX` counts as that; the original's int32 overflows.

Source: kube-controller-manager v1.36, pkg/controller/podautoscaler/replica_calculator.go and
metrics/utilization.go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

CPU_INITIALIZATION_SECONDS = 300.0
INITIAL_READINESS_SECONDS = 30.0
METRIC_WINDOW_SECONDS = 15.0
"""Time over which CPU usage is averaged: metrics-server's resolution."""
DEFAULT_TOLERANCE = 0.1
UTILIZATION_MAX = 2**31 - 1
"""In percent: the status has an int32."""


class MetricsError(Exception):
    """A metric from which no number of replicas follows; the text is the original's."""


class PodSample(NamedTuple):
    """A pod with its usage. usage: None without a metric. ready_changed, started: Unix seconds.

    ready: None without the condition Ready.
    """

    name: str
    phase: str
    is_deleting: bool
    ready: bool | None
    ready_changed: float
    started: float
    usage: int | None
    request: int = 0


class Tolerances(NamedTuple):
    """How far the usage may be from its target, as a share of it."""

    down: float = DEFAULT_TOLERANCE
    up: float = DEFAULT_TOLERANCE

    def contain(self, ratio: float) -> bool:
        """True for a ratio of usage to target that is left alone."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class MetricTarget(NamedTuple):
    """What a metric aims at: `utilization` (percent of the requests), or `average` per pod."""

    utilization: int | None = None
    average: int = 0


class Proposal(NamedTuple):
    """Replicas that a metric asks for. utilization: of the requests in percent, None for a
    target without; average: usage per pod."""

    replicas: int
    utilization: int | None
    average: int


def propose_replicas(
    pods: Sequence[PodSample],
    current: int,
    target: MetricTarget,
    tolerances: Tolerances,
    resource: str,
    now: float,
) -> Proposal:
    """The number of replicas for the usage of these pods. Raises MetricsError.

    Pods that are not ready count as idle when scaling up; pods without a metric as idle when
    scaling up, and as fully used when scaling down.
    """
    if not pods:
        raise MetricsError("no pods returned by selector while calculating replica count")
    ready, unready, missing = _grouped(pods, resource, now)
    usages = {pod.name: pod.usage for pod in ready if pod.usage is not None}
    if not usages:
        raise MetricsError("did not receive metrics for targeted pods (pods might be unready)")
    requests = {pod.name: pod.request for pod in pods}
    ratio, utilization, average = _usage_ratio(usages, requests, target)
    grows = bool(unready) and ratio > 1.0
    if not grows and not missing:
        if tolerances.contain(ratio):
            return Proposal(current, utilization, average)
        return Proposal(math.ceil(ratio * len(ready)), utilization, average)
    for pod in missing:
        if ratio < 1.0:
            usages[pod.name] = _full_usage(pod, target)
        elif ratio > 1.0:
            usages[pod.name] = 0
    if grows:
        usages |= {pod.name: 0 for pod in unready}
    again, _, _ = _usage_ratio(usages, requests, target)
    turned = (ratio < 1.0 < again) or (again < 1.0 < ratio)
    replicas = math.ceil(again * len(usages))
    backwards = (again < 1.0 and replicas > current) or (again > 1.0 and replicas < current)
    if tolerances.contain(again) or turned or backwards:
        replicas = current
    return Proposal(replicas, utilization, average)


def _grouped(
    pods: Sequence[PodSample], resource: str, now: float
) -> tuple[list[PodSample], list[PodSample], list[PodSample]]:
    """Pods that count, pods that are not ready, pods without a metric."""
    ready: list[PodSample] = []
    unready: list[PodSample] = []
    missing: list[PodSample] = []
    for pod in pods:
        if pod.is_deleting or pod.phase == "Failed":
            continue
        if pod.phase == "Pending":
            unready.append(pod)
        elif pod.usage is None:
            missing.append(pod)
        elif resource == "cpu" and _is_unready(pod, now):
            unready.append(pod)
        else:
            ready.append(pod)
    return ready, unready, missing


def _is_unready(pod: PodSample, now: float) -> bool:
    """True for a pod whose CPU usage says nothing yet."""
    if pod.ready is None or not pod.started:
        return True
    if pod.started + CPU_INITIALIZATION_SECONDS > now:
        return not pod.ready or now < pod.ready_changed + METRIC_WINDOW_SECONDS
    return not pod.ready and pod.started + INITIAL_READINESS_SECONDS > pod.ready_changed


def _usage_ratio(
    usages: Mapping[str, int], requests: Mapping[str, int], target: MetricTarget
) -> tuple[float, int | None, int]:
    """Ratio of usage to target, utilization in percent (if that is the target), usage per pod."""
    total = sum(usages.values())
    average = total // len(usages)
    if target.utilization is None:
        return average / target.average, None, average
    requested = sum(requests[name] for name in usages)
    if not requested:
        raise MetricsError("no metrics returned matched known pods")
    utilization = min(total * 100 // requested, UTILIZATION_MAX)
    return utilization / target.utilization, utilization, average


def _full_usage(pod: PodSample, target: MetricTarget) -> int:
    """Usage of a pod without a metric, so that it gives no reason to scale down."""
    if target.utilization is None:
        return target.average
    return pod.request * max(100, target.utilization) // 100
