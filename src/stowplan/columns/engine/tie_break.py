"""Tie-break by a random number drawn once per attempt, independent of the order of rows.

The position of every row in the snapshot's order is mixed with the draw, and the smallest result
wins. Two implementations that find the same tied rows therefore choose the same one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.array_types import Ints

TieBreakSource = np.random.Generator | int | None
"""Breaks ties: a generator, or a number from `draw_tie_breaks`; None takes the first row."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


NO_TIE_BREAKS: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
"""Without tie-break numbers the first row is chosen."""


def draw_tie_breaks(rng: np.random.Generator, n_attempts: int) -> NDArray[np.uint64]:
    """uint64 (n_attempts,): one number per attempt; the same whether drawn at once or one by
    one."""
    return rng.integers(0, 2**64 - 1, n_attempts, dtype=np.uint64, endpoint=True)


def draw_tie_break(rng: TieBreakSource) -> int | None:
    """Number for one attempt, None where the first row is taken."""
    return int(draw_tie_breaks(rng, 1)[0]) if isinstance(rng, np.random.Generator) else rng


def tie_break_ranks(draw: int, ranks: Ints) -> NDArray[np.uint64]:
    """uint64 (n_rows,): tie-break rank of each row. ranks: int64 (n_rows,), at least 0."""
    # The finalizer of SplitMix64, whose output bits are practically independent.
    mixed: NDArray[np.uint64] = np.uint64(draw) ^ (ranks.astype(np.uint64) * _SPREAD)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    return mixed ^ (mixed >> np.uint64(31))
