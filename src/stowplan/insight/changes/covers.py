"""Covers: the cheapest set of pods whose amounts add up to what is short."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

TOLERANCE = 1e-6
STEPS_MAX = 2_000
"""Sets looked at for one node; beyond it the best one so far counts."""


class CoverItem(NamedTuple):
    """A pod that may go. cost: its points. amounts: base units, per short resource."""

    cost: int
    amounts: tuple[int, ...]


class Cover(NamedTuple):
    """The cheapest set. chosen: indexes of items. is_exact: False when the search was cut."""

    cost: int
    chosen: tuple[int, ...]
    is_exact: bool


def least_cost(items: Sequence[CoverItem], short: Sequence[int]) -> int | None:
    """A lower bound of the cost of covering what is short; None when all items are not enough."""
    bound = 0
    for axis, missing in enumerate(short):
        left = float(missing)
        if left <= 0:
            continue
        axis_cost = 0.0
        pairs = [(item[1][axis] / item[0], item[0]) for item in items if item[1][axis] > 0]
        pairs.sort(reverse=True)
        for ratio, cost in pairs:
            if ratio * cost >= left:
                axis_cost += left / ratio
                left = 0.0
                break
            axis_cost += cost
            left -= ratio * cost
        if left > TOLERANCE:
            return None
        # Costs are whole hundreds; the tolerance is for the sum of floats.
        bound = max(bound, 100 * math.ceil(axis_cost / 100 - TOLERANCE))
    return bound


def cheapest_cover(items: Sequence[CoverItem], short: Sequence[int]) -> Cover | None:
    """The cheapest items whose amounts reach `short` on every axis; None when all are not enough.

    Of equally cheap sets the one with the larger items.
    """
    order = sorted(range(len(items)), key=lambda i: (items[i].cost, [-a for a in items[i].amounts]))
    search = _CoverSearch([items[i] for i in order], tuple(short))
    search.run()
    if search.best is None:
        return None
    cost, chosen = search.best
    return Cover(cost, tuple(order[i] for i in chosen), search.n_steps <= STEPS_MAX)


class _CoverSearch:
    """Depth first, the large items first, cut by a bound on what is left."""

    def __init__(self, items: list[CoverItem], short: tuple[int, ...]) -> None:
        self.short = short
        scale = [max(missing, 1) for missing in short]

        def usefulness(item: CoverItem) -> float:
            parts = zip(item.amounts, scale, strict=True)
            return sum(min(amount / most, 1.0) for amount, most in parts) / item.cost

        self.order = sorted(range(len(items)), key=lambda i: -usefulness(items[i]))
        self.items = [items[i] for i in self.order]
        self.best: tuple[int, list[int]] | None = None
        self.n_steps = 0

    def run(self) -> None:
        """Find `best`: cost and the chosen positions."""
        self._extend(0, 0, self.short, [])
        if self.best is not None:
            self.best = self.best[0], [self.order[i] for i in self.best[1]]

    def _extend(self, first: int, cost: int, short: tuple[int, ...], chosen: list[int]) -> None:
        if all(missing <= 0 for missing in short):
            if self.best is None or cost < self.best[0]:
                self.best = cost, list(chosen)
            return
        bound = least_cost(self.items[first:], short)
        if bound is None or (self.best is not None and cost + bound >= self.best[0]):
            return
        tried: set[CoverItem] = set()
        for index in range(first, len(self.items)):
            item = self.items[index]
            # An equal item at a later position gives the same sets.
            if item in tried:
                continue
            tried.add(item)
            self.n_steps += 1
            if self.n_steps > STEPS_MAX and self.best is not None:
                return
            if self.best is not None and cost + item.cost >= self.best[0]:
                continue
            left = tuple(m - a for m, a in zip(short, item.amounts, strict=True))
            chosen.append(index)
            self._extend(index + 1, cost + item.cost, left, chosen)
            chosen.pop()
