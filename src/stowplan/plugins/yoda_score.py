"""The arithmetic of Yoda's scores: how strong cards are, and how much memory of a node is free.

Every division truncates; no amount is negative.

Source: NJUPT-ISL Yoda-Scheduler 2.x, pkg/yoda/score/algorithm.go and pkg/yoda/collection.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.framework import Rows
from stowplan.plugins.yoda_cards import Left
from stowplan.plugins.yoda_columns import CardColumns

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FREE_WEIGHT = 2
ACTUAL_WEIGHT = 2
ALLOCATE_WEIGHT = 3
"""All else counts once."""


class Maxima(msgspec.Struct, frozen=True):
    """The most of each amount among the cards that count, at least 1."""

    bandwidth: int = 1
    clock: int = 1
    core: int = 1
    power: int = 1
    free: int = 1
    total: int = 1

    def clock_divisor(self, *, compat: bool) -> int:
        """What clocks are divided by.

        Differs: the original divides them by the highest bandwidth.
        """
        return self.bandwidth if compat else self.clock


def maxima_of(cards: CardColumns, counting: Bools, *, compat: bool) -> Maxima:
    """The maxima of the cards that count; counting: bool (n_cards,)."""
    free = cards.free if compat else cards.left

    def most(column: Ints) -> int:
        return int(column[counting].max(initial=1))

    return Maxima(
        most(cards.bandwidth),
        most(cards.clock),
        most(cards.core),
        most(cards.power),
        most(free),
        most(cards.total_memory),
    )


def card_score(left: Left, maxima: Maxima, *, compat: bool) -> int:
    """How strong a card is, in percent of the strongest, summed over what counts."""
    gpu = left.gpu
    free = gpu.free if compat else left.memory
    return (
        gpu.bandwidth * 100 // maxima.bandwidth
        + gpu.clock * 100 // maxima.clock_divisor(compat=compat)
        + gpu.core * 100 // maxima.core
        + gpu.power * 100 // maxima.power
        + free * 100 // maxima.free * FREE_WEIGHT
        + gpu.total * 100 // maxima.total
    )


def node_score(total: int, free: int, asked: int) -> int:
    """How much of a node's GPU memory is free, and how much of it no pod has asked for.

    Differs: where a report says that there is no memory it is 0; the original divides by zero.
    """
    if total == 0:
        return 0
    actual = free * 100 // total * ACTUAL_WEIGHT
    unasked = (total - asked) * 100 // total * ALLOCATE_WEIGHT if asked <= total else 0
    return actual + unasked


def scores_by_column(
    cards: CardColumns, counting: Bools, maxima: Maxima, asked: Ints, rows: Rows, *, compat: bool
) -> Ints:
    """int64 (n_rows,): what the cards that count are worth, and `node_score`; 0 without report.

    asked: int64 (n_rows,), MiB that the pods of each row ask for.
    """
    free = cards.free if compat else cards.left
    strength = (
        cards.bandwidth * 100 // maxima.bandwidth
        + cards.clock * 100 // maxima.clock_divisor(compat=compat)
        + cards.core * 100 // maxima.core
        + cards.power * 100 // maxima.power
        + free * 100 // maxima.free * FREE_WEIGHT
        + cards.total_memory * 100 // maxima.total
    )
    basic = cards.on(cards.total(np.where(counting, strength, 0)), rows, 0)
    total = cards.on(cards.total_sum, rows, 0)
    left = cards.on(cards.free_sum if compat else cards.left_sum, rows, 0)
    divisor = np.maximum(total, 1)
    actual = left * 100 // divisor * ACTUAL_WEIGHT
    unasked = np.where(asked <= total, (total - asked) * 100 // divisor * ALLOCATE_WEIGHT, 0)
    scores: Ints = basic + np.where(total == 0, 0, actual + unasked)
    return scores
