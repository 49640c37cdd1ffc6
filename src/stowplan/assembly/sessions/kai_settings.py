"""Options of KAI-Scheduler's sessions from its configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from stowplan.batch.queue_models.kai.kai_session import KaiOptions
from stowplan.objects.encoding import duration

MOVED_MAX = 16
"""KAI's `--max-consolidation-preemptees`."""
SIMULATED_MAX = 400
"""Evictions that an action of a session may simulate."""


def live_kai_options(
    actions: Iterable[str], plugins: Mapping[str, Mapping[str, Any]]
) -> KaiOptions:
    """Options as KAI's flags are by default."""
    return msgspec.structs.replace(
        kai_options(actions, plugins), max_moved=MOVED_MAX, simulated_max=SIMULATED_MAX
    )


def kai_options(
    actions: Iterable[str], plugins: Mapping[str, Mapping[str, Any]], *, skips_alike: bool = True
) -> KaiOptions:
    """Options without bounds for the search for victims. plugins: name -> arguments, of those that
    are on. skips_alike: see KaiOptions."""
    runtimes = plugins.get("minruntime", {})
    proportion = plugins.get("proportion", {})
    return KaiOptions(
        actions=tuple(actions),
        plugins=frozenset(plugins),
        placement=plugins.get("nodeplacement", {}),
        k=float(proportion.get("kValue", 1.0)),
        saturation=max(1.0, float(proportion.get("relcaimerSaturationMultiplier", 1.0))),
        reclaim_min_runtime=_seconds(runtimes.get("defaultReclaimMinRuntime")),
        preempt_min_runtime=_seconds(runtimes.get("defaultPreemptMinRuntime")),
        reclaim_by_leaf=runtimes.get("reclaimResolveMethod") == "queue",
        skips_alike=skips_alike,
    )


def _seconds(text: str | None) -> float:
    return max(0.0, duration.parse(text) / timedelta(seconds=1)) if text else 0.0
