"""Arithmetic of Yoda's scores: the strength of cards, and the free memory of a node.

Every division truncates. Amounts are unsigned integers of 64 bits and wrap as such; those of a
report are bounded, so that nothing wraps, unless `compat`.

Source: NJUPT-ISL Yoda-Scheduler 2.x, pkg/yoda/score/algorithm.go and pkg/yoda/collection.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import SCORE_MAX, Rows
from stowplan.objects.quantity import INT64_MAX
from stowplan.plugins.yoda.card_columns import CardColumns
from stowplan.plugins.yoda.gpu_request import UINT64_MAX
from stowplan.plugins.yoda.scv_devices import Gpu

UInts = NDArray[np.uint64]
Amount = TypeVar("Amount", int, UInts)
"""One amount, or uint64 many."""

# For numbers and for arrays, which the type checker cannot express.
_MASK: Any = UINT64_MAX
FREE_WEIGHT = 2
ACTUAL_WEIGHT = 2
ALLOCATE_WEIGHT = 3
"""All other properties have weight 1."""


class CardMaxima(msgspec.Struct, frozen=True):
    """The maximum of each amount among the counted cards, at least 1."""

    bandwidth: int = 1
    clock: int = 1
    core: int = 1
    power: int = 1
    free: int = 1
    total: int = 1

    def clock_divisor(self, *, compat: bool) -> int:
        """The divisor of clocks.

        Differs: the original divides them by the highest bandwidth.
        """
        return self.bandwidth if compat else self.clock


def card_maxima(cards: CardColumns, counting: Bools, *, compat: bool) -> CardMaxima:
    """The maxima of the counted cards; counting: bool (n_cards,)."""
    free = cards.free if compat else cards.left

    def most(column: UInts) -> int:
        return int(column[counting].max(initial=1))

    return CardMaxima(
        most(cards.bandwidth),
        most(cards.clock),
        most(cards.core),
        most(cards.power),
        most(free),
        most(cards.total_memory),
    )


def card_score(
    card: Gpu | CardColumns, free: Amount, maxima: CardMaxima, *, compat: bool
) -> Amount:
    """Strength of a card, in percent of the strongest, summed over its properties.

    For one card, or uint64 (n_cards,) for many. free: what counts as its free memory.
    """

    def percent(amount: Any, most: int) -> Any:
        return wrap_uint64(amount * 100) // most

    strength: Amount = wrap_uint64(
        percent(card.bandwidth, maxima.bandwidth)
        + percent(card.clock, maxima.clock_divisor(compat=compat))
        + percent(card.core, maxima.core)
        + percent(card.power, maxima.power)
        + percent(free, maxima.free) * FREE_WEIGHT
        + percent(card.total_memory, maxima.total)
    )
    return strength


def wrap_uint64(amount: Amount) -> Amount:
    """The lowest 64 bits of an amount; arrays wrap anyway."""
    kept: Amount = amount & _MASK
    return kept


def node_score(cards: int, total: int, free: int, asked: int) -> int:
    """The score of a node: that of its cards, its free GPU memory, and its GPU memory that no pod
    requests.

    A score over 2^63 - 1, which bounded amounts never reach, counts as 0, as in the original.

    Differs: where a report has no memory it counts as 0; the original divides by zero.
    """
    score = cards
    if total != 0:
        score += wrap_uint64(free * 100) // total * ACTUAL_WEIGHT
        if asked <= total:
            score += wrap_uint64((total - asked) * 100) // total * ALLOCATE_WEIGHT
    score = wrap_uint64(score)
    return score if score <= INT64_MAX else 0


def scores_by_column(
    cards: CardColumns,
    counting: Bools,
    maxima: CardMaxima,
    asked: UInts,
    rows: Rows,
    *,
    compat: bool,
) -> Ints:
    """int64 (n_rows,): `node_score` of each row by the counted cards; 0 without report.

    asked: uint64 (n_rows,), MiB that the pods of each row request.
    """
    free = cards.free if compat else cards.left
    strength = card_score(cards, free, maxima, compat=compat)
    strength[~counting] = 0
    total = cards.on(cards.total_sum, rows, 0)
    left = cards.on(cards.free_sum if compat else cards.left_sum, rows, 0)
    divisor = np.maximum(total, 1)
    memory = left * 100 // divisor * ACTUAL_WEIGHT
    unasked = (total - asked) * 100 // divisor * ALLOCATE_WEIGHT
    memory += np.where(asked <= total, unasked, 0)
    scores = cards.on(cards.total(strength), rows, 0) + np.where(total == 0, 0, memory)
    scores[scores > INT64_MAX] = 0
    return scores.astype(np.int64)


def normalize_min_max(scores: Ints) -> Ints:
    """int64 (n_rows,): from 0, the lowest of them, to 100; 100 for all where they are equal.

    Where amounts are not bounded the product wraps as a signed number, and the result may be
    outside the range, as in the original.
    """
    lowest, highest = int(scores.min()), int(scores.max())
    if highest == lowest:
        return np.full(scores.shape, SCORE_MAX, dtype=np.int64)
    shares = (scores - lowest) * SCORE_MAX
    span = highest - lowest
    # Toward zero, as the original divides.
    percent: Ints = shares // span + ((shares < 0) & (shares % span != 0))
    return percent
