"""Interval calibration: forecasts of the past, compared with what followed, widen those of today.

The ends of an interval are multiplied by factors, chosen so that the intervals of past forecasts,
with their ends multiplied, would have held as often as the percentiles ask for. Pods that still
wait have waited at least so long, which the Kaplan-Meier estimate counts in; where too many of them
still wait the upper end is open. Intervals never become narrower.

Source: Y. Romano, E. Patterson, E. Candes, Conformalized quantile regression, NeurIPS (2019), with
the ratio of times in place of their difference.

Unproved: pods that wait at one moment have errors in common, and moments differ from each other;
the guarantee of conformal prediction assumes neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Floats
from stowplan.forecast.start_times.run_time_draws import kaplan_meier

COMPARED_MIN = 20
"""Past forecasts of pods that have started, with fewer nothing is changed."""
_SHORTEST_S = 1.0


class PastForecast(NamedTuple):
    """A past forecast of a pod. earliest_s, latest_s: its interval, infinity for an open one.
    waited_s: until the pod started, or until now if it has not (`has_started`)."""

    earliest_s: float
    latest_s: float
    waited_s: float
    has_started: bool


class IntervalCalibration(msgspec.Struct, frozen=True, rename="camel"):
    """What past forecasts say of the interval.

    moments: at which was forecast. forecasts: of pods that waited then. held: how many of them
    held, or may still hold. earliest_factor: at most 1. latest_factor: 1 or more; None where the
    upper end is open.
    """

    moments: int
    forecasts: int
    held: int
    earliest_factor: float
    latest_factor: float | None

    def text(self) -> str:
        """In words."""
        share = 100 * self.held / self.forecasts
        ends = "open" if self.latest_factor is None else f"latest x {self.latest_factor:.2f}"
        return (
            f"intervals are widened, earliest x {self.earliest_factor:.2f}, {ends}: of "
            f"{self.forecasts} forecasts at {self.moments} past moments {share:.0f} % held"
        )


def calibration_of(
    past: Sequence[Sequence[PastForecast]], percentiles: tuple[int, int]
) -> IntervalCalibration | None:
    """The calibration by past forecasts, moment by moment; None where too few pods have started.

    Each moment counts as much as every other one, however many pods waited then.
    """
    moments = [found for found in past if found]
    every = [one for found in moments for one in found]
    has_started = np.array([one.has_started for one in every], np.bool_)
    if int(has_started.sum()) < COMPARED_MIN:
        return None
    weights = np.concatenate([np.full(len(found), 1.0 / len(found)) for found in moments])
    waited = _logs([one.waited_s for one in every])
    early = waited - _logs([one.earliest_s for one in every])
    late = waited - _logs([one.latest_s for one in every])
    low, high = (percentile / 100 for percentile in percentiles)
    is_held = (early >= 0) & ((late <= 0) | ~has_started)
    earliest = min(_quantile(early, has_started, weights, low), 0.0)
    latest = max(_quantile(late, has_started, weights, high), 0.0)
    return IntervalCalibration(
        len(moments),
        len(every),
        int(is_held.sum()),
        round(math.exp(earliest), 6),
        None if math.isinf(latest) else round(math.exp(latest), 6),
    )


def widened(
    calibration: IntervalCalibration | None, earliest_s: float, latest_s: float
) -> tuple[float, float]:
    """The ends of an interval, in seconds, infinity for an open one."""
    if calibration is None:
        return earliest_s, latest_s
    factor = calibration.latest_factor
    latest_s = math.inf if factor is None else max(latest_s, _SHORTEST_S) * factor
    return earliest_s * calibration.earliest_factor, latest_s


def _logs(seconds: Sequence[float]) -> Floats:
    # An open end counts as one that no run reaches: 300 years.
    found: Floats = np.log(np.clip(np.array(seconds, np.float64), _SHORTEST_S, 1e10))
    return found


def _quantile(scores: Floats, is_known: Bools, weights: Floats, share: float) -> float:
    """The least score that is not exceeded in `share` of the cases; infinity where too many are not
    known. is_known: False for a score that is as large or larger."""
    order = np.lexsort((~is_known, scores))
    survival = kaplan_meier(weights[order], is_known[order])
    places = np.flatnonzero((survival <= 1.0 - share + 1e-12) & is_known[order])
    return float(scores[order][places[0]]) if places.shape[0] else math.inf
