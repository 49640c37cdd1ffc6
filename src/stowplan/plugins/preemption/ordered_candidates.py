"""Rows in the order in which preemption chooses among them."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.plugins.preemption.dry_runs import PRIORITY_OFFSET

Entry = tuple[float, ...]
"""The costs of a candidate, the rank of its row, whether these are its costs and not what they are
at best, the row, and its stamp."""


class OrderedCandidates:
    """Rows in the order of choice: all of them at one time, sorted by what they cost at best, and a
    heap of those whose costs are known or that have changed since. An entry with an older stamp
    than its row does not count."""

    def __init__(self, n_rows: int) -> None:
        self._stamps: Ints = np.zeros(n_rows, dtype=np.int64)
        self._sorted: Ints = np.zeros(0, dtype=np.int64)
        self._next = 0
        self._violations: Ints = np.zeros(0, dtype=np.int64)
        self._lowest: Ints = np.zeros(0, dtype=np.int64)
        self._ranks: Ints = np.zeros(0, dtype=np.int64)
        self._heap: list[Entry] = []

    def fill(self, rows: Ints, violations: Ints, lowest: Ints, ranks: Ints) -> None:
        """Begin with these rows. violations, lowest: int64 (n_rows,), see `costs_at_best`. ranks:
        int64 (n_rows,), of the rows."""
        order = np.lexsort((ranks, lowest, violations))
        self._stamps[:] = 0
        self._sorted, self._next, self._heap = rows[order], 0, []
        self._violations, self._lowest = violations[order], lowest[order]
        self._ranks = ranks[order]

    def drop(self, row: int) -> None:
        """What was known of a row no longer counts."""
        self._stamps[row] += 1

    def put(self, row: int, costs: Sequence[float], rank: int, *, are_known: bool) -> None:
        """A row is a candidate at these costs, or at best at these; it was dropped before."""
        heappush(self._heap, (*costs, rank, are_known, row, self._stamps.item(row)))
        if len(self._heap) > 4 * self._stamps.shape[0] + 64:
            self._heap = [one for one in self._heap if self._is_current(one)]
            heapify(self._heap)

    def _is_current(self, entry: Entry) -> bool:
        return bool(self._stamps.item(int(entry[-2])) == entry[-1])

    def first(self, n_most: int) -> tuple[list[int], bool]:
        """The row that is chosen, and whether its costs are known; or the first rows, of which they
        are not. Empty without candidates."""
        heap, stamps, ordered = self._heap, self._stamps, self._sorted
        while heap and not self._is_current(heap[0]):
            heappop(heap)
        at, n_sorted = self._next, ordered.shape[0]
        while at < n_sorted and stamps.item(ordered.item(at)):
            at += 1
        self._next = at
        if at < n_sorted:
            costs = costs_at_best(self._violations.item(at), self._lowest.item(at))
            if not heap or (*costs, self._ranks.item(at), False) < heap[0]:
                some = ordered[at : at + n_most]
                return some[stamps[some] == 0].tolist(), False
        if not heap:
            return [], True
        return [int(heap[0][-2])], bool(heap[0][-3])


def costs_at_best(violations: int, lowest: int) -> tuple[float, ...]:
    """The least criteria of a row. violations: 0 where a pod may go that takes no disruption budget
    below zero, else 1. lowest: the lowest priority of such pods, or of all that may go."""
    return (violations, lowest, lowest + PRIORITY_OFFSET, 1, -inf)
