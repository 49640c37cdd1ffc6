"""Paired comparisons: intervals, tests and corrections for differences of runs with equal seeds.

Source: Efron, "Better Bootstrap Confidence Intervals" (1987), for BCa; Holm, "A Simple Sequentially
Rejective Multiple Test Procedure" (1979); the exact sign-flip test is Fisher's randomisation test
of paired differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from stowplan.columns.array_types import Floats

EXACT_MAX = 20
"""Pairs up to which all signs are tried; beyond it FLIPS random ones."""
FLIPS = 100_000
RESAMPLES = 10_000
SEED = 20_231_107
CONFIDENCE = 0.95
_TIE = 1e-9
"""Sums of differences that are equal but for rounding count as equal."""
_NORMAL = NormalDist()


def bca_interval(
    sample: Floats, confidence: float = CONFIDENCE, resamples: int = RESAMPLES, seed: int = SEED
) -> tuple[float, float]:
    """Bias-corrected and accelerated bootstrap interval of the mean.

    sample: float64 (n,), n at least 2. A sample without spread gives its value twice.
    """
    n = sample.shape[0]
    if n < 2:
        raise ValueError(f"bca_interval: got {n} values, wanted at least 2")
    mean = float(sample.mean())
    if float(np.ptp(sample)) == 0.0:
        return mean, mean
    resampled = np.random.default_rng(seed).integers(0, n, (resamples, n))
    means = sample[resampled].mean(axis=1)
    share = float((means < mean).mean() + (means <= mean).mean()) / 2
    bias = _NORMAL.inv_cdf(min(max(share, 1 / (2 * resamples)), 1 - 1 / (2 * resamples)))
    without = (sample.sum() - sample) / (n - 1)
    away = without.mean() - without
    acceleration = float((away**3).sum() / (6 * (away**2).sum() ** 1.5))
    tail = _NORMAL.inv_cdf((1 - confidence) / 2)
    percentages = [
        100 * _NORMAL.cdf(bias + (bias + z) / (1 - acceleration * (bias + z)))
        for z in (tail, -tail)
    ]
    low, high = np.percentile(means, percentages)
    return float(low), float(high)


def sign_flip_p(differences: Floats, seed: int = SEED) -> float:
    """Two-sided p of the mean difference being 0, by flipping the signs of pairs.

    differences: float64 (n,). Exact up to EXACT_MAX pairs; with more, FLIPS random sets of signs
    and the observed one. 1 without pairs.
    """
    n = differences.shape[0]
    if n == 0:
        return 1.0
    observed = abs(float(differences.sum()))
    least = observed - _TIE * max(float(np.abs(differences).sum()), 1e-300)
    if n <= EXACT_MAX:
        sums = np.zeros(1)
        for difference in differences[1:]:
            sums = np.concatenate((sums + difference, sums - difference))
        # The sign of the first pair only mirrors the sums.
        return float((np.abs(sums + differences[0]) >= least).mean())
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), (FLIPS, n))
    hits = int((np.abs(signs @ differences) >= least).sum())
    return (hits + 1) / (FLIPS + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values, corrected for so many comparisons, in the same order."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[index]))
        corrected[index] = highest
    return corrected


def smallest_p(n_pairs: int) -> float:
    """The smallest p that `sign_flip_p` can give."""
    return 1.0 if n_pairs == 0 else max(2.0 ** (1 - n_pairs), 1 / (FLIPS + 1))


def effect_size(differences: Floats) -> float:
    """Cohen's d of paired samples: mean difference in standard deviations of the differences.

    differences: float64 (n,). Infinite for equal differences other than 0, 0 for fewer than 2.
    """
    if differences.shape[0] < 2:
        return 0.0
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    if spread > _TIE * abs(mean):
        return mean / spread
    return 0.0 if mean == 0.0 else math.copysign(math.inf, mean)
