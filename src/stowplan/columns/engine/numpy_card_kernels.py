"""Places a run of pods by resources and on GPU cards, in NumPy, where cards filter only.

All other rules are those of `numpy_kernels`; a row is also refused where too few cards suffice. The
points of rows are kept in the scratch arrays of the group of classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.engine import arrays as at
from stowplan.columns.engine import card_arrays as ca
from stowplan.columns.engine.numpy_kernels import NOWHERE, NumpyRun, RunRules


class NumpyCardRun(NumpyRun):
    """A run of pods on the kernels' arrays and on cards. scores: see `CardScratch`."""

    def __init__(
        self,
        columns: at.NodeColumns,
        rules: at.ClassRules,
        grouping: at.DomainGrouping,
        cards: ca.CardKernelColumns,
        card_rules: ca.CardRules,
        scores: at.Codes,
    ) -> None:
        super().__init__(columns, rules, grouping)
        self._cards, self._card_rules, self._scores = cards, card_rules, scores

    def kept_points(self, one: RunRules) -> at.Codes | None:
        """See `NumpyRun.kept_points`."""
        kept: at.Codes = self._scores[self._card_rules.requests[one.number, ca.SLOT]]
        return kept

    def evaluated(self, one: RunRules, rows: at.Codes | at.Ints | None) -> at.Ints:
        """See `NumpyRun.evaluated`."""
        total = super().evaluated(one, rows)
        those = slice(None) if rows is None else rows
        requests, cards = self._card_rules.requests[one.number], self._cards
        n_suiting = (cards.left[those] >= requests[ca.MILLI]).sum(axis=1)
        has_access = self._card_rules.access[one.number][cards.model[those]] != 0
        total[~(has_access & (n_suiting >= requests[ca.NUM]))] = NOWHERE
        return total

    def take_cards(self, one: RunRules, row: int) -> list[int]:
        """Take the cards for a pod on a row; returns their indices."""
        requests, left = self._card_rules.requests[one.number], self._cards.left[row]
        num, milli = int(requests[ca.NUM]), int(requests[ca.MILLI])
        is_worst = self._card_rules.options[ca.SELECTION] == ca.WORST
        chosen = chosen_cards(left.tolist(), num, milli, most_left=bool(is_worst))
        left[chosen] -= milli
        return chosen


def chosen_cards(left: Sequence[int], num: int, milli: int, *, most_left: bool) -> list[int]:
    """Indices of the cards that a pod gets: whole cards are the first idle ones, parts of several
    those with the least left. most_left: a part of one is on the card with the most left, not with
    the least. left: milli of each card."""
    suiting = [card for card, value in enumerate(left) if value >= milli]
    if milli < ca.CARD_MILLI:
        sign = -1 if most_left and num == 1 else 1
        suiting.sort(key=lambda card: sign * left[card])
    return suiting[:num]


def run(
    columns: at.NodeColumns,
    rules: at.ClassRules,
    grouping: at.DomainGrouping,
    cards: ca.CardKernelColumns,
    card_rules: ca.CardRules,
    scores: at.Codes,
    heads: at.Ints,
    draws: NDArray[np.uint64],
    rows: at.Ints,
    totals: at.Ints,
    given: at.Ints,
    n_log: int,
) -> int:
    """Place pods in order until one fits nowhere, or one was placed on a row that is behind;
    returns the number of placed pods.

    columns, rules, grouping: see `arrays`. cards, card_rules: see `card_arrays`; the selection is
    BEST or WORST. heads, draws, rows, totals, given: as for `card_kernels.run`.
    """
    placing = NumpyCardRun(columns, rules, grouping, cards, card_rules, scores)
    for i, number in enumerate(heads.tolist()):
        one = placing.rules_of(number)
        row, total = placing.choose(one, n_log, int(draws[i]) if draws.shape[0] else None)
        if row < 0:
            return i
        chosen = placing.take_cards(one, row)
        rows[i], totals[i], given[i, 0] = row, total, len(chosen)
        given[i, 1 : len(chosen) + 1] = chosen
        placing.log[n_log] = row
        n_log += 1
        if placing.place(one, row):
            return i + 1
    return int(heads.shape[0])
