"""Comparisons of two configurations, measure by measure, with a verdict in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from stowplan.columns.array_types import Floats
from stowplan.experiments.statistics.paired import (
    CONFIDENCE,
    bca_interval,
    effect_size,
    holm,
    sign_flip_p,
    smallest_p,
)


class MeasureText(msgspec.Struct, frozen=True):
    """Names of a measure. title: as in "wait (mean)". better: `lower`, `higher`, or "" where
    neither is."""

    name: str
    title: str
    unit: str = ""
    better: str = ""


class MeasureComparison(msgspec.Struct, frozen=True, rename="camel"):
    """One measure of B against A, paired by seed.

    difference: mean of B - A; low, high: its interval, None with fewer than 2 seeds. relative,
    relative_low, relative_high: the same in parts of the mean of A, None where that is 0. p:
    uncorrected; p_corrected: for the number of measures compared. effect: Cohen's d of the pairs,
    None where it is infinite. is_different: p_corrected is small enough and the interval does not
    contain 0. verdict: in words.
    """

    measure: str
    seeds: int
    mean_a: float
    mean_b: float
    difference: float
    low: float | None
    high: float | None
    relative: float | None
    relative_low: float | None
    relative_high: float | None
    p: float
    p_corrected: float
    effect: float | None
    is_different: bool
    verdict: str


def compare(
    a: Mapping[str, Mapping[int, float]],
    b: Mapping[str, Mapping[int, float]],
    measures: Sequence[MeasureText],
    labels: tuple[str, str] = ("A", "B"),
    confidence: float = CONFIDENCE,
) -> list[MeasureComparison]:
    """Compare two configurations.

    a, b: measure -> seed -> value; only seeds that both have count. Measures are compared in the
    given order, and p values are corrected for the number of those that differ on some seed: where
    all pairs are equal, no signs could show anything (Tarone, "A Modified Bonferroni Method for
    Discrete Data", 1990). Where seeds change neither side they are one run, not many: p is 1.
    Raises ValueError for a value that is not finite.
    """
    pairs = [_paired(measure.name, a, b) for measure in measures]
    p_values = [1.0 if _is_one_run(*pair) else sign_flip_p(pair[1] - pair[0]) for pair in pairs]
    differs = [bool((a != b).any()) and not _is_one_run(a, b) for a, b in pairs]
    n_tests = max(sum(differs), 1)
    tested = iter(holm([p for p, differ in zip(p_values, differs, strict=True) if differ]))
    corrected = [next(tested) if differ else 1.0 for differ in differs]
    return [
        _comparison(measure, left, right, (p, p_corrected), labels, n_tests, confidence)
        for measure, (left, right), p, p_corrected in zip(
            measures, pairs, p_values, corrected, strict=True
        )
    ]


def _is_one_run(left: Floats, right: Floats) -> bool:
    """True where the seeds change neither side."""
    return left.shape[0] > 1 and float(np.ptp(left)) == float(np.ptp(right)) == 0.0


def _paired(
    name: str, a: Mapping[str, Mapping[int, float]], b: Mapping[str, Mapping[int, float]]
) -> tuple[Floats, Floats]:
    left, right = a.get(name, {}), b.get(name, {})
    seeds = sorted(left.keys() & right.keys())
    found = [np.array([side[seed] for seed in seeds], dtype=np.float64) for side in (left, right)]
    if not all(np.isfinite(values).all() for values in found):
        raise ValueError(f"measure {name}: got a value that is not finite")
    return found[0], found[1]


def _comparison(
    measure: MeasureText,
    left: Floats,
    right: Floats,
    p_values: tuple[float, float],
    labels: tuple[str, str],
    n_measures: int,
    confidence: float,
) -> MeasureComparison:
    differences = right - left
    n_seeds = differences.shape[0]
    mean_a = float(left.mean()) if n_seeds else 0.0
    mean_b = float(right.mean()) if n_seeds else 0.0
    difference = float(differences.mean()) if n_seeds else 0.0
    bounds = bca_interval(differences, confidence) if n_seeds >= 2 else None
    is_different = (
        bounds is not None and p_values[1] <= 1 - confidence and not bounds[0] <= 0.0 <= bounds[1]
    )
    scale = abs(mean_a)
    relative = [
        None if value is None or not scale else value / scale
        for value in (difference, *(bounds or (None, None)))
    ]
    effect = effect_size(differences)
    found = MeasureComparison(
        measure.name,
        n_seeds,
        mean_a,
        mean_b,
        difference,
        bounds[0] if bounds else None,
        bounds[1] if bounds else None,
        relative[0],
        relative[1],
        relative[2],
        *p_values,
        effect if math.isfinite(effect) else None,
        is_different,
        "",
    )
    text = _verdict(measure, found, labels, n_measures, confidence)
    if difference and _is_one_run(left, right):
        text = _one_run_verdict(measure, found, labels)
    return msgspec.structs.replace(found, verdict=text)


def _verdict(
    measure: MeasureText,
    found: MeasureComparison,
    labels: tuple[str, str],
    n_measures: int,
    confidence: float,
) -> str:
    seeds = f"{found.seeds} seed{'s' if found.seeds != 1 else ''}"
    title = measure.title
    if found.seeds == 0:
        return f"{title}: no seed on which both have a value"
    if found.difference == 0.0 and found.low == found.high:
        return f"{title}: equal on {seeds}"
    if not found.is_different:
        needed = _seeds_needed(n_measures, confidence)
        if found.seeds < needed:
            least = smallest_p(found.seeds) * n_measures
            return (
                f"{title}: {seeds} cannot show a difference (smallest p {min(least, 1.0):.3g}), "
                f"at least {needed} can{_bounds(found, measure, confidence)}"
            )
        return f"{title}: no difference found on {seeds}{_bounds(found, measure, confidence)}"
    words = {"lower": ("worse", "better"), "higher": ("better", "worse")}.get(measure.better)
    is_more = found.difference > 0
    amount = _amount(abs(found.difference), found.relative, measure)
    side = f" ({words[0] if is_more else words[1]})" if words else ""
    return (
        f"{title}: {labels[1]} has {amount} {'more' if is_more else 'less'} than {labels[0]}{side}"
        f"{_bounds(found, measure, confidence)} on {seeds}"
    )


def _one_run_verdict(
    measure: MeasureText, found: MeasureComparison, labels: tuple[str, str]
) -> str:
    amount = _amount(abs(found.difference), found.relative, measure)
    more = "more" if found.difference > 0 else "less"
    return (
        f"{measure.title}: {labels[1]} has {amount} {more} than {labels[0]} on this workload; "
        f"{found.seeds} seeds change nothing, so they say nothing of others"
    )


def _seeds_needed(n_measures: int, confidence: float) -> int:
    """Seeds with which the correction for so many measures leaves a chance."""
    return next(n for n in range(2, 64) if smallest_p(n) * n_measures <= 1 - confidence)


def _amount(difference: float, relative: float | None, measure: MeasureText) -> str:
    if relative is not None:
        return f"{abs(relative):.1%}".replace("%", " %")
    return f"{difference:.4g}{' ' + measure.unit if measure.unit else ''}"


def _bounds(found: MeasureComparison, measure: MeasureText, confidence: float) -> str:
    if found.low is None or found.high is None:
        return ""
    level = f"{100 * confidence:g} % CI"
    if found.relative_low is not None and found.relative_high is not None:
        return f" ({level} {100 * found.relative_low:+.1f} to {100 * found.relative_high:+.1f} %)"
    unit = f" {measure.unit}" if measure.unit else ""
    return f" ({level} {found.low:+.4g} to {found.high:+.4g}{unit})"
