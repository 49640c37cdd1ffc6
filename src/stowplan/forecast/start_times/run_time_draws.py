"""Run time distributions: drawn once per simulation from run times that were observed.

Pods that still run are observations, too: their run time is at least what they have run. Leaving
them out would make run times too short, since long ones end last. The distribution is the
Kaplan-Meier estimate with random weights, so that all pods of one simulation run by the same
distribution, and simulations differ by what is not known of it.

Source: E. Kaplan, P. Meier, Nonparametric estimation from incomplete observations, JASA 53 (1958);
A. Lo, A Bayesian bootstrap for censored data, Annals of Statistics 21 (1993).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Floats

OTHERS_WEIGHT = 2.0
"""Pods of other owners count together as this many pods of the owner."""
SPREAD_ALONE = SPREAD_MAX = 0.5
"""Standard deviation of the logarithm of run times where only one was observed; at most so much."""
SHORTEST_S = 1.0
TAIL_MIN = 0.3
TAIL_WEIGHT = 4.0
"""An exponent of 1 counts as much as this many pods that ended."""


class ObservedRuns(NamedTuple):
    """Observed run times in seconds. finished: float64 (n_finished,), sorted. running: float64
    (n_running,), for how long pods have run that have not ended."""

    finished: Floats
    running: Floats


class RunTimeDistribution(msgspec.Struct, frozen=True):
    """A distribution of run times.

    times: float64 (n_finished,), sorted, seconds. survival: float64 (n_finished,): the probability
    of a run time that is longer. tail: beyond the last of the times the probability of a run time
    longer than t falls as t to the power of -tail. spread: standard deviation by which the
    logarithm of a draw is smoothed.
    """

    times: Floats
    survival: Floats
    tail: float
    spread: float

    def draw(self, rng: np.random.Generator, elapsed_s: float = 0.0) -> float:
        """The run time of a pod that has run for `elapsed_s`, in seconds."""
        at = int(np.searchsorted(self.times, elapsed_s, side="right")) if elapsed_s else 0
        reached = 1.0 if at == 0 else float(self.survival[at - 1])
        # In (0, 1], so that the tail below is finite.
        target = reached * (1.0 - rng.random())
        place = at + int(np.searchsorted(-self.survival[at:], -target, side="left"))
        if place < self.times.shape[0] and reached > 0:
            left = float(self.times[place]) - elapsed_s
            return elapsed_s + left * math.exp(self.spread * rng.standard_normal())
        last = max(float(self.times[-1]), elapsed_s, SHORTEST_S)
        left = float(self.survival[-1]) if reached > 0 else 0.0
        share = target / left if left > 0 else 1.0 - rng.random()
        return last * float(min(max(share, 1e-9), 1.0) ** (-1.0 / self.tail))


def distribution_of(
    own: ObservedRuns, others: ObservedRuns | None, rng: np.random.Generator
) -> RunTimeDistribution:
    """A random distribution that fits the observations.

    own: of pods of the same owner. others: of all pods, which count as `OTHERS_WEIGHT` of them;
    None for none. One of the two has a finished pod.
    """
    groups = [(own, 1.0)]
    if others is not None:
        n_others = others.finished.shape[0] + others.running.shape[0]
        groups.append((others, OTHERS_WEIGHT / max(n_others, 1)))
    times = np.concatenate([part for runs, _ in groups for part in runs])
    ends = np.concatenate(
        [np.full(part.shape[0], i == 0) for runs, _ in groups for i, part in enumerate(runs)]
    )
    weights = np.concatenate(
        [weight * rng.standard_exponential(p.shape[0]) for runs, weight in groups for p in runs]
    )
    # Of equal times the pod that ended comes first: the other one has run longer.
    order = np.lexsort((~ends, times))
    times, ends, weights = times[order], ends[order], weights[order]
    survival = kaplan_meier(weights, ends)[ends]
    tail = _tail(times, ends, weights, rng)
    return RunTimeDistribution(times[ends], survival, tail, _spread(own))


def _tail(times: Floats, ends: Bools, weights: Floats, rng: np.random.Generator) -> float:
    """Exponent of the longer half of the run times, drawn from what is known of it. With nothing
    known it is around 1, by which half of the pods run for as long again as they have.

    Source: B. Hill, A simple general approach to inference about the tail of a distribution, Annals
    of Statistics 3 (1975), with running pods as censored observations.
    """
    middle = max(float(np.median(times[ends])), SHORTEST_S)
    longer = times > middle
    n_ended = float(weights[longer & ends].sum())
    logs = float((weights[longer] * np.log(times[longer] / middle)).sum())
    return max(float(rng.gamma(TAIL_WEIGHT + n_ended)) / (TAIL_WEIGHT + logs), TAIL_MIN)


def kaplan_meier(weights: Floats, ends: Bools) -> Floats:
    """float64 (n_times,): probability of a longer run time, at each of the sorted times."""
    at_risk = np.cumsum(weights[::-1], dtype=np.float64)[::-1]
    hazard: Floats = np.where(ends, weights / at_risk, 0.0)
    found: Floats = np.cumprod(1.0 - np.minimum(hazard, 1.0), dtype=np.float64)
    return found


def _spread(own: ObservedRuns) -> float:
    """By how much the logarithm of run times is not known: its standard error."""
    n_own = own.finished.shape[0]
    if n_own < 2:
        return SPREAD_ALONE if n_own else 0.0
    deviation = float(np.log(np.maximum(own.finished, SHORTEST_S)).std(ddof=1))
    return min(deviation / math.sqrt(n_own), SPREAD_MAX)
