"""Rows in the order in which preemption chooses among them."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.plugins.preemption.dry_runs import PRIORITY_OFFSET

NOT_OPEN = 2**63 - 1
"""The key of a row that is no candidate, or whose costs are known."""

RANK_BITS, COUNT_BITS, PRIORITY_BITS = 20, 5, 32
RANKS_MAX = 1 << RANK_BITS
"""With more rows than this, their ranks do not fit into a key."""

COUNT_MAX = (1 << COUNT_BITS) - 1
"""Victims, or violations of disruption budgets, that a key tells from fewer."""

PRIORITY_MASK = (1 << PRIORITY_BITS) - 1
COUNT_AT, PRIORITY_AT = RANK_BITS, RANK_BITS + COUNT_BITS
VIOLATIONS_AT = PRIORITY_AT + PRIORITY_BITS

BLOCK_BITS = 8
BLOCK = 1 << BLOCK_BITS
"""Rows of which the least key is kept."""

FEW = 2
"""As many are handled one by one faster than by arrays."""

Entry = tuple[float, ...]
"""The costs of a candidate, the rank of its row, and the row."""


class OrderedCandidates:
    """Rows in the order of choice: those whose costs are known, and open ones, of which only the
    key is known that `key_at_best` gives for them."""

    def __init__(self, n_rows: int) -> None:
        n_blocks = max(1, -(-n_rows // BLOCK))
        self._keys: Ints = np.full(n_blocks * BLOCK, NOT_OPEN, dtype=np.int64)
        self._blocks: Ints = self._keys.reshape(n_blocks, BLOCK)
        self._least: Ints = np.full(n_blocks, NOT_OPEN, dtype=np.int64)
        # Blocks whose least key may be another.
        self._changed: set[int] = set()
        self._known: dict[int, Entry] = {}
        self._heap: list[Entry] = []

    def fill(self, keys: Ints) -> None:
        """Begin with these keys, int64 (n_rows,)."""
        self._keys[: keys.shape[0]] = keys
        self._least = self._blocks.min(axis=1)
        self._changed.clear()
        self._known, self._heap = {}, []

    def open(self, rows: Ints, keys: Ints) -> None:
        """These rows have these keys, and what was known of them no longer counts."""
        self._keys[rows] = keys
        numbers = rows.tolist()
        self._changed.update([row >> BLOCK_BITS for row in numbers])
        if self._known:
            for row in numbers:
                self._known.pop(row, None)

    def open_one(self, row: int, key: int) -> None:
        """`open` of one row."""
        self._keys[row] = key
        self._changed.add(row >> BLOCK_BITS)
        self._known.pop(row, None)

    def close(self, row: int) -> None:
        """An open row is no candidate any more."""
        self._keys[row] = NOT_OPEN
        self._changed.add(row >> BLOCK_BITS)

    def put(self, row: int, costs: Sequence[float], rank: int) -> None:
        """A closed row is a candidate at these costs."""
        entry = self._known[row] = (*costs, rank, row)
        heappush(self._heap, entry)
        if len(self._heap) > 4 * len(self._known) + 64:
            self._heap = list(self._known.values())
            heapify(self._heap)

    def first(self, n_most: int, lowest: int) -> tuple[list[int], bool]:
        """The row that is chosen, and whether its costs are known; or the first row, and some that
        may be the next ones, of which they are not. Empty without candidates. lowest: no pod that
        may go has a lower priority."""
        heap, known = self._heap, self._known
        while heap and known.get(int(heap[0][-1])) is not heap[0]:
            heappop(heap)
        if len(self._changed) <= FEW:
            for one in self._changed:
                self._least[one] = self._blocks[one].min()
        else:
            changed = np.array(list(self._changed), dtype=np.int64)
            self._least[changed] = self._blocks[changed].min(axis=1)
        self._changed.clear()
        block = int(self._least.argmin())
        key = self._least.item(block)
        if key != NOT_OPEN and (not heap or costs_at_best(key, lowest) < heap[0]):
            if n_most == 1:
                return [block * BLOCK + int(self._blocks[block].argmin())], False
            # Few are those of its block: to look for the others costs more than they save.
            is_whole = n_most > BLOCK
            keys, begin = (self._keys, 0) if is_whole else (self._blocks[block], block * BLOCK)
            n_first = min(n_most, keys.shape[0])
            some = np.argpartition(keys, n_first - 1)[:n_first]
            return (some[keys[some] != NOT_OPEN] + begin).tolist(), False
        return [int(heap[0][-1])] if heap else [], True


def key_at_best(violations: int, highest: int, n_victims: int, rank: int) -> int:
    """The least criteria of a row as one number: in this order, and more than COUNT_MAX count as so
    many."""
    return (
        min(violations, COUNT_MAX) << VIOLATIONS_AT
        | highest + PRIORITY_OFFSET << PRIORITY_AT
        | min(n_victims, COUNT_MAX) << COUNT_AT
        | rank
    )


def keys_at_best(violations: Ints, highest: Ints, n_victims: Ints, ranks: Ints) -> Ints:
    """`key_at_best` of rows, all int64 (n_rows,)."""
    keys: Ints = (
        np.minimum(violations, COUNT_MAX) << VIOLATIONS_AT
        | highest + PRIORITY_OFFSET << PRIORITY_AT
        | np.minimum(n_victims, COUNT_MAX) << COUNT_AT
        | ranks
    )
    return keys


def costs_at_best(key: int, lowest: int) -> tuple[float, ...]:
    """The least criteria of a row with this key, and its rank. lowest: see `first`. Rows with
    greater keys have greater criteria."""
    highest = (key >> PRIORITY_AT & PRIORITY_MASK) - PRIORITY_OFFSET
    n_victims = key >> COUNT_AT & COUNT_MAX
    total = highest + PRIORITY_OFFSET + (n_victims - 1) * (lowest + PRIORITY_OFFSET)
    return (key >> VIOLATIONS_AT, highest, total, n_victims, -inf, key & RANKS_MAX - 1)
