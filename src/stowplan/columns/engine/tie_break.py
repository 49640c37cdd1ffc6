"""Lots: ties broken by a number drawn once per attempt, whichever way the rows are walked.

Every row's place in the snapshot's order is mixed with the draw, and the smallest result wins. So
two walks that find the same rows tied choose the same one, in whatever order they find them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TieBreakSource = np.random.Generator | int | None
"""What breaks ties: a generator, or a number drawn with `draws`; None takes the first row."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


NO_TIE_BREAKS: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
"""Without tie-break numbers the first row is chosen."""


def draw_tie_breaks(rng: np.random.Generator, n_attempts: int) -> NDArray[np.uint64]:
    """uint64 (n_attempts,): a number per attempt; the same whether drawn at once or one by one."""
    return rng.integers(0, 2**64 - 1, n_attempts, dtype=np.uint64, endpoint=True)


def draw_tie_break(rng: TieBreakSource) -> int | None:
    """The number for one attempt, None where the first row is taken."""
    return int(draw_tie_breaks(rng, 1)[0]) if isinstance(rng, np.random.Generator) else rng


def tie_break_ranks(draw: int, ranks: NDArray[np.int64]) -> NDArray[np.uint64]:
    """uint64 (n_rows,): the lot of each row. ranks: int64 (n_rows,), at least 0."""
    # The finaliser of SplitMix64, whose bits depend on each other as little as those of dice.
    mixed: NDArray[np.uint64] = np.uint64(draw) ^ (ranks.astype(np.uint64) * _SPREAD)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    return mixed ^ (mixed >> np.uint64(31))
