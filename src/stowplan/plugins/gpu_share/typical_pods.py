"""Typical pods of a workload: its most frequent shapes with their shares.

Source: hkust-adsl/kubernetes-scheduler-simulator, GetTypicalPods.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stowplan.objects.devices.gpu_cards import CARD_MILLI, GpuShareRequest
from stowplan.plugins.gpu_share.fragmentation import TypicalPod

DEFAULT_THRESHOLD_PERCENT = 60
DEFAULT_STEP = 10

PodShape = tuple[int, int, int, str]
"""cpu_milli, milli per card, number of cards, models as written."""


class TypicalPodsOptions(msgspec.Struct, frozen=True):
    """involve_cpu_pods: count pods without GPU, too. popularity_threshold: percent of the pods to
    cover, 0 for 60. increase_step: shapes to take at a time, 0 for 10. gpu_res_weight: additional
    weight per whole card."""

    involve_cpu_pods: bool = False
    popularity_threshold: int = 0
    increase_step: int = 0
    gpu_res_weight: float = 0.0


def typical_pods(
    workload: Iterable[tuple[GpuShareRequest, int]], options: TypicalPodsOptions
) -> list[TypicalPod]:
    """The most frequent shapes of requests, the most frequent first.

    workload: requests, each with the number of pods.
    """
    counts: dict[PodShape, float] = {}
    total = 0.0
    for request, count in workload:
        if request.num == 0 and not options.involve_cpu_pods:
            continue
        weight = 1.0
        if options.gpu_res_weight > 0 and request.milli == CARD_MILLI:
            weight += request.num * options.gpu_res_weight
        shape = request.cpu_milli, request.milli, request.num, request.models
        counts[shape] = counts.get(shape, 0.0) + weight * count
        total += weight * count
    ranked = sorted(((count, shape) for shape, count in counts.items()), reverse=True)
    kept, covered = _popular(ranked, total, options)
    shares = [count / total for count, _ in ranked[:kept]]
    if kept < len(ranked):
        shares = [share / (covered / total) for share in shares]
    return [
        TypicalPod(cpu, num, milli, models, share)
        for (_, (cpu, milli, num, models)), share in zip(ranked, shares, strict=False)
    ]


def _popular(
    ranked: list[tuple[float, PodShape]], total: float, options: TypicalPodsOptions
) -> tuple[int, float]:
    """How many shapes reach the threshold, and how many pods they have."""
    threshold = options.popularity_threshold or DEFAULT_THRESHOLD_PERCENT
    step = options.increase_step or DEFAULT_STEP
    kept, covered = 0, 0.0
    while kept < len(ranked):
        for count, _ in ranked[kept : kept + step]:
            covered += count
        kept = min(kept + step, len(ranked))
        if covered * 100 >= threshold * total:
            break
    return kept, covered
