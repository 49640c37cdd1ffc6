"""Options of KAI-Scheduler's sessions from its configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from stowplan.apis.batch.cron_schedule import parse_schedule
from stowplan.batch.queue_models.kai.kai_options import KaiOptions
from stowplan.batch.queue_models.kai.state.kai_usage import FETCH_INTERVAL, WEEK, UsageRules
from stowplan.batch.queue_models.kai.state.numa_zones import ZoneRules
from stowplan.config.queue_models import kai_flags
from stowplan.config.queue_models.kai_configuration import (
    IGNORE_LIST,
    NUMA,
    RECONSTRUCT,
    KaiConfiguration,
    days_or_duration,
    is_true,
    moment_of,
)
from stowplan.config.queue_models.kai_flags import SIGNATURES, STALENESS_GRACE
from stowplan.objects.encoding import duration

MOVED_MAX = 16
"""KAI's `--max-consolidation-preemptees`."""
STALENESS_GRACE_S = 60.0
"""KAI's `--default-staleness-grace-period`, in seconds."""
SESSION_S = 1.0
"""KAI's `--schedule-period`, in seconds."""
SIMULATED_MAX = 400
"""Evictions that an action of a session may simulate."""


def live_kai_options(read: KaiConfiguration, *, is_exact: bool = False) -> KaiOptions:
    """Options of a configuration, where it says nothing as KAI's flags are by default. is_exact:
    nothing of KAI is mended."""
    rules, usage, flags, interval = None, read.usage, read.flags, FETCH_INTERVAL
    if usage is not None:
        rules, interval = _usage_rules(usage), _fetch_interval(usage)
    return msgspec.structs.replace(
        kai_options(read.actions, read.plugins, skips_alike=flags.get(SIGNATURES, True)),
        max_moved=flags.get(kai_flags.MOVED_MAX, MOVED_MAX),
        grace=flags.get(STALENESS_GRACE, STALENESS_GRACE_S),
        depths={name: depth for name, depth in read.depths.items() if depth >= 0},
        simulated_max=SIMULATED_MAX,
        usage=rules,
        usage_interval=interval,
        shares_cards=read.shares_cards,
        keeps_minimum=not is_exact,
    )


def _usage_rules(usage: Mapping[str, Any]) -> UsageRules:
    half_life, window = usage.get("halfLifePeriod"), usage.get("windowSize")
    kind, start = usage.get("windowType"), usage.get("tumblingWindowStartTime")
    return UsageRules(
        # As in KAI, 0 is no half-life.
        half_life=(days_or_duration(half_life) or None) if half_life else None,
        window=days_or_duration(window) if window else WEEK,
        is_fixed=kind == "tumbling",
        start=0.0 if start is None else moment_of(start),
        resets=parse_schedule(usage["cronString"]) if kind == "cron" else None,
    )


def _fetch_interval(usage: Mapping[str, Any]) -> float:
    """Seconds, at least those of a session."""
    given = usage.get("fetchInterval")
    return max(days_or_duration(given), SESSION_S) if given else FETCH_INTERVAL


def kai_options(
    actions: Iterable[str], plugins: Mapping[str, Mapping[str, Any]], *, skips_alike: bool = True
) -> KaiOptions:
    """Options without bounds for the search for victims. plugins: name -> arguments, of those that
    are on. skips_alike: see KaiOptions."""
    zones = None
    if NUMA in plugins:
        ignored = str(plugins[NUMA].get(IGNORE_LIST, "")).split(",")
        zones = ZoneRules(
            frozenset(name.strip() for name in ignored if name.strip()),
            trusts_available=not is_true(plugins[NUMA].get(RECONSTRUCT, True)),
        )
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
        zones=zones,
    )


def _seconds(text: str | None) -> float:
    return max(0.0, duration.parse(text) / timedelta(seconds=1)) if text else 0.0
