"""Options of runs that an experiment may vary: their values, and what they amount to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stowplan.config.strict_decoder import Problems, format_value
from stowplan.inputs.workloads.arrivals import PROCESSES, parse_arrivals
from stowplan.objects.timing.duration_text import DURATION_WANTED, parse_churn, parse_duration
from stowplan.simulation.cluster.cluster_api import Pace
from stowplan.simulation.cluster.node_churn import Churn
from stowplan.simulation.replay import ReplayOptions

OptionValue = str | int | float | bool | None
"""A value as the plan writes it; None for the default."""

_NODE_COUNT_MAX = 1_000_000


class PlanOption(NamedTuple):
    """modes: in which the option has a meaning. accepts: whether a value is allowed. wanted: what
    is."""

    modes: tuple[str, ...]
    accepts: Callable[[Any], bool]
    wanted: str

    def checked(self, value: Any, path: str, problems: Problems) -> OptionValue:
        """The value; adds a problem where it is not allowed. A whole number given as such stays."""
        if value is None or self.accepts(value):
            found: OptionValue = value
            return found
        problems.add(path, format_value(value), self.wanted)
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_factor(value: Any) -> bool:
    return _is_number(value) and 0 < value < math.inf


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and _is_number(value) and 1 <= value <= _NODE_COUNT_MAX


def _is_text_of(parse: Callable[[str], Any], *, positive: bool = False) -> Callable[[Any], bool]:
    def accepts(value: Any) -> bool:
        try:
            found = parse(str(value)) if isinstance(value, str) or _is_number(value) else None
        except ValueError:
            return False
        return found is not None and not (positive and found == 0)

    return accepts


_BOTH, _REPLAY = ("fill", "replay"), ("replay",)
_DURATION = PlanOption(_REPLAY, _is_text_of(parse_duration), DURATION_WANTED)
_POSITIVE = PlanOption(
    _REPLAY, _is_text_of(parse_duration, positive=True), f"{DURATION_WANTED}, greater than 0"
)
OPTIONS: Mapping[str, PlanOption] = {
    "nodeCount": PlanOption(_BOTH, _is_count, "a whole number from 1 up"),
    "arrivals": PlanOption(
        _BOTH,
        _is_text_of(parse_arrivals),
        f"PROCESS[,KEY=VALUE]... of {', '.join(PROCESSES)}, as poisson,rate=120",
    ),
    "speedup": PlanOption(_REPLAY, _is_factor, "a number greater than 0"),
    "until": _POSITIVE,
    "churn": PlanOption(_REPLAY, _is_text_of(parse_churn), "UP/DOWN, as 30d/1h"),
    "departures": PlanOption(_REPLAY, lambda value: isinstance(value, bool), "true or false"),
    "bindLatency": _DURATION,
    "startLatency": _DURATION,
    "sampleEvery": _POSITIVE,
    "autoscale": PlanOption(
        _REPLAY, lambda value: isinstance(value, str) and bool(value), "an autoscale file"
    ),
}
"""By name; the order is that of columns and of the matrix."""


def replay_options(options: Mapping[str, OptionValue], autoscale: Any = None) -> ReplayOptions:
    """The replay that options describe. autoscale: the decoded file of that option."""
    default = ReplayOptions()

    def seconds(name: str) -> float | None:
        value = options.get(name)
        return None if value is None else parse_duration(str(value))

    bind_s, start_s = seconds("bindLatency"), seconds("startLatency")
    churn, speedup = options.get("churn"), options.get("speedup")
    return ReplayOptions(
        speedup=default.speedup if speedup is None else float(speedup),
        until_s=seconds("until"),
        departures=options.get("departures") is not False,
        pace=Pace(
            default.pace.bind_s if bind_s is None else bind_s,
            default.pace.start_s if start_s is None else start_s,
            default.pace.grace_s,
        ),
        churn=None if churn is None else Churn(*parse_churn(str(churn))),
        sample_s=seconds("sampleEvery"),
        autoscale=autoscale,
    )
