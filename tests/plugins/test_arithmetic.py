"""Truncating division and the default normalisation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stowplan.plugins.arithmetic import (
    default_normalize_score,
    default_normalize_score_reversed,
    divide_truncated,
    n_rows_of,
    percentages,
)
from tests.plugins.clusters import is_found

Ints = NDArray[np.int64]


def ints(*numbers: int) -> Ints:
    return np.array(numbers, dtype=np.int64)


def test_division_truncates_toward_zero() -> None:
    sevens = ints(7, -7, 7, -7, 6, -6, 0)
    assert divide_truncated(sevens, ints(2, 2, -2, -2, 3, 3, -5)).tolist() == [
        3,
        -3,
        -3,
        3,
        2,
        -2,
        0,
    ]
    assert divide_truncated(ints(7, -7), 2).tolist() == [3, -3]
    assert divide_truncated(ints(), ints()).tolist() == []


def test_percentages_keep_the_sign_of_go() -> None:
    assert percentages(ints(1, 2, 3, -1), ints(3, 3, 3, 3)).tolist() == [33, 66, 100, -33]


@pytest.mark.parametrize(
    ("scores", "forward", "backward"),
    [
        ((), [], []),
        ((0, 0), [0, 0], [100, 100]),
        ((1, 2, 3), [33, 66, 100], [67, 34, 0]),
        # Negative scores alone stay as they are, beside others they are scaled too.
        ((-5, -1), [-5, -1], [100, 100]),
        ((-5, 3), [-166, 100], [266, 0]),
    ],
)
def test_normalising(scores: tuple[int, ...], forward: list[int], backward: list[int]) -> None:
    assert default_normalize_score(ints(*scores)).tolist() == forward
    assert default_normalize_score_reversed(ints(*scores)).tolist() == backward


def test_rows_are_counted_whatever_names_them() -> None:
    assert n_rows_of(slice(0, 4)) == 4
    assert n_rows_of(ints(7, 3)) == 2


pairs = st.tuples(
    st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62).filter(lambda number: number != 0)
)


def truncates(numerator: int, denominator: int, found: Ints) -> bool:
    size = abs(numerator) // abs(denominator)
    return int(found[0]) == (size if (numerator < 0) == (denominator < 0) else -size)


@given(pairs)
def test_any_quotient(pair: tuple[int, int]) -> None:
    assert truncates(*pair, divide_truncated(*map(ints, pair)))


@pytest.mark.parametrize(
    "wrong",
    [lambda a, b: a // b, lambda a, b: (a / b).astype(np.int64)],
    ids=["floor", "by way of floats"],
)
def test_other_divisions_are_caught(wrong: np.ufunc) -> None:
    assert is_found(pairs, lambda p: not truncates(*p, wrong(*map(ints, p))))
