"""Integer arithmetic over rows that plugins share, exact as in the original.

Source: kube-scheduler v1.36, plugins/helper normalize_score; Go's integer division.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import SCORE_MAX, Rows
from stowplan.framework.functions import priorities


def n_rows_of(rows: Rows) -> int:
    """Number of rows."""
    return len(range(rows.start, rows.stop)) if isinstance(rows, slice) else rows.shape[0]


def divide_truncated(numerator: Ints, denominator: Ints | int) -> Ints:
    """int64 (n,): numerator / denominator truncated toward zero; no denominator may be 0."""
    floor: Ints = numerator // denominator
    lowest = denominator if isinstance(denominator, int) else denominator.min(initial=1)
    if lowest > 0 and numerator.min(initial=0) >= 0:
        return floor
    is_inexact = floor * denominator != numerator
    truncated: Ints = floor + (is_inexact & ((numerator < 0) != (np.asarray(denominator) < 0)))
    return truncated


def percentages(parts: Ints, wholes: Ints) -> Ints:
    """int64 (n,): 100 * part / whole truncated toward zero; no whole may be 0."""
    return divide_truncated(parts * SCORE_MAX, wholes)


def default_normalize_score(scores: Ints) -> Ints:
    """int64 (n_rows,): scores as percentages of the highest; unchanged when none is above 0."""
    return priorities.normalize_scores(scores, SCORE_MAX)


def default_normalize_score_reversed(scores: Ints) -> Ints:
    """int64 (n_rows,): as `default_normalize_score`, but the lowest score is worth most."""
    return priorities.normalize_scores(scores, SCORE_MAX, reverse=True)
