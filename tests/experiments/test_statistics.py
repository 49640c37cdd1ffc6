"""Statistics of paired runs, judged by SciPy and by known cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.columns.array_types import Floats
from stowplan.experiments.statistics.paired import (
    SEED,
    bca_interval,
    effect_size,
    holm,
    sign_flip_p,
    smallest_p,
)
from stowplan.experiments.statistics.paired_comparison import MeasureText, compare
from tests.soak import examples

WAIT = MeasureText("wait", "wait (mean)", "s", "lower")
USE = MeasureText("use", "utilisation", "", "higher")

SAMPLES = st.lists(st.floats(-100, 100, allow_subnormal=False), min_size=3, max_size=12)


def array(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


@settings(max_examples=examples(20), deadline=None)
@given(SAMPLES)
def test_intervals_are_those_of_scipy(values: list[float]) -> None:
    sample = array(*values)
    if np.ptp(sample) < 1e-6:
        return
    # Imported here: all workers read this file, and one runs it.
    from scipy import stats

    expected = stats.bootstrap(
        (sample,), np.mean, n_resamples=2000, method="BCa", rng=np.random.default_rng(SEED)
    ).confidence_interval
    found = bca_interval(sample, resamples=2000)
    if math.isnan(expected.low) or math.isnan(expected.high):
        return
    assert found == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-6)


def test_an_interval_that_is_not_accelerated_would_be_seen() -> None:
    """The wrong variant: percentiles of the bootstrap distribution."""
    sample = array(0.1, 0.2, 0.2, 0.3, 0.4, 5.0, 9.0)
    resampled = np.random.default_rng(SEED).integers(0, 7, (10_000, 7))
    plain = np.percentile(sample[resampled].mean(axis=1), (2.5, 97.5))
    assert abs(bca_interval(sample)[1] - plain[1]) > 0.3


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.integers(-9, 9), min_size=2, max_size=9))
def test_the_sign_flip_test_counts_all_signs(values: list[int]) -> None:
    sample = array(*map(float, values))
    observed = abs(sum(values))
    signs = list(itertools.product((1, -1), repeat=len(values)))
    hits = sum(
        abs(sum(s * v for s, v in zip(some, values, strict=True))) >= observed for some in signs
    )
    assert sign_flip_p(sample) == pytest.approx(hits / len(signs))
    from scipy import stats

    expected = stats.permutation_test(
        (sample, np.zeros(len(values))),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=10_000,
    )
    assert sign_flip_p(sample) == pytest.approx(expected.pvalue)


def test_the_published_example_of_ten_pairs() -> None:
    """Darwin's maize (Fisher, 1935): the randomisation test of 15 pairs gives 0.05267."""
    eighths = array(49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48)
    assert sign_flip_p(eighths) == pytest.approx(0.05267, abs=1e-5)


def test_many_pairs_are_sampled() -> None:
    rng = np.random.default_rng(1)
    assert sign_flip_p(rng.normal(1.0, 1.0, 40)) < 1e-4
    assert sign_flip_p(rng.normal(0.0, 1.0, 40)) > 0.01
    # The same answer each time.
    sample = rng.normal(0.3, 1.0, 30)
    assert sign_flip_p(sample) == sign_flip_p(sample)


def test_correction_by_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_effect_sizes_and_degenerate_samples() -> None:
    assert effect_size(array(1, 2, 3)) == pytest.approx(2.0)
    assert effect_size(array(2, 2)) == math.inf
    assert effect_size(array(0, 0)) == 0.0
    assert bca_interval(array(3, 3, 3)) == (3.0, 3.0)
    with pytest.raises(ValueError, match="wanted at least 2"):
        bca_interval(array(1))
    assert (sign_flip_p(array()), smallest_p(0), smallest_p(10)) == (1.0, 1.0, 2 / 1024)


def runs(values: Floats) -> dict[int, float]:
    return {seed: float(value) for seed, value in enumerate(values)}


def test_verdicts() -> None:
    rng = np.random.default_rng(7)
    base = rng.normal(100, 5, 10)
    a = {"wait": runs(base), "use": runs(base / 200)}
    b = {"wait": runs(base * 0.88 + rng.normal(0, 1, 10)), "use": runs(base / 200)}
    wait, use = compare(a, b, (WAIT, USE))
    assert wait.is_different
    assert wait.verdict.startswith("wait (mean): B has 12.")
    assert "% less than A (better) (95 % CI -1" in wait.verdict
    assert wait.verdict.endswith("on 10 seeds")
    assert not use.is_different
    assert use.verdict == "utilisation: equal on 10 seeds"
    # Utilisation is equal on every seed and costs no significance.
    assert wait.p_corrected == wait.p
    both = compare(a, {"wait": b["wait"], "use": runs(base / 190)}, (WAIT, USE))
    assert both[0].p_corrected == 2 * wait.p


def test_what_few_seeds_cannot_show() -> None:
    a, b = {"wait": runs(array(1, 2, 3))}, {"wait": runs(array(9, 9, 9))}
    (wait,) = compare(a, b, [WAIT])
    assert wait.verdict.startswith(
        "wait (mean): 3 seeds cannot show a difference (smallest p 0.25), at least 6 can (95 % CI +"
    )
    (wait,) = compare(a, {"wait": {9: 1.0}}, [WAIT])
    assert wait.verdict == "wait (mean): no seed on which both have a value"
    (wait,) = compare({"wait": {1: 5.0}}, {"wait": {1: 6.0}}, [WAIT])
    assert (wait.low, wait.is_different) == (None, False)
    with pytest.raises(ValueError, match="measure wait: got a value that is not finite"):
        compare(a, {"wait": {0: math.nan}}, [WAIT])


def test_seeds_are_paired_and_not_lined_up() -> None:
    a = {"wait": {seed: float(seed) for seed in range(10)}}
    b = {"wait": {seed: float(seed) + 1 for seed in reversed(range(10))}}
    (wait,) = compare(a, b, [WAIT])
    assert (wait.difference, wait.low, wait.high) == (1.0, 1.0, 1.0)
    assert wait.is_different


def test_a_against_a_finds_nothing_in_95_of_100() -> None:
    rng = np.random.default_rng(42)
    found = 0
    for _ in range(100):
        first, second = (
            {name: runs(rng.normal(50, 10, 10)) for name in ("wait", "use")} for _ in "ab"
        )
        found += any(one.is_different for one in compare(first, second, (WAIT, USE)))
    assert found <= 5
