"""Items per row, where a row may have several (taints, declared features)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import repeat
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.array_types import Bools, Ints, grow
from stowplan.columns.vocabulary import Vocabulary

V = TypeVar("V", bound=Hashable)


class Incidence(Generic[V]):
    """Items per row, padded with -1 to the widest row, so that a changed row is one write.

    items: int32 (width, n_rows_max): the first item of every row, then the second, and so on. A row
    may have an item twice; order is kept.
    """

    def __init__(self, vocabulary: Vocabulary[V] | None = None) -> None:
        self.vocabulary: Vocabulary[V] = Vocabulary() if vocabulary is None else vocabulary
        self.items: NDArray[np.int32] = np.full((0, 0), -1, dtype=np.int32)
        self.width = 0

    def of_row(self, row: int) -> list[V]:
        """The items of a row, in order."""
        return [self.vocabulary.values[item] for item in self.items[:, row] if item >= 0]

    def write(self, row: int, values: Sequence[V]) -> None:
        """Replace the items of `row`."""
        self._grow(row, len(values))
        self.items[:, row] = -1
        for place, value in enumerate(values):
            self.items[place, row] = self.vocabulary.add(value)

    def forget_unused(self, n_rows: int) -> None:
        """Drop values that no row has, if they are the majority; item numbers change, in a
        vocabulary of its own."""
        items = self.items[:, :n_rows]
        left = self.vocabulary.without_unused(items[items >= 0])
        if left is not None:
            self.vocabulary, numbers = left
            self.items = numbers[items]

    def copy_row(self, source: Incidence[V], from_row: int, to_row: int) -> None:
        """Copy a row of `source`, which shares this vocabulary (or is this incidence)."""
        self._grow(to_row, source.width)
        self.items[:, to_row] = -1
        self.items[: source.width, to_row] = source.items[: source.width, from_row]

    def count_where(self, rule: Callable[[V], bool], rows: slice | Ints) -> Ints:
        """int64 (n_rows,): number of items of each of `rows` for which the rule holds."""
        answers = self.vocabulary.ask(rule).astype(np.int64)
        counts = np.zeros(count_rows(rows), dtype=np.int64)
        if answers.any():
            for place in range(self.width):
                counts += answers[self.items[place][rows]]
        return counts

    def has_all(self, values: Sequence[V], rows: slice | Ints) -> Bools:
        """bool (n_rows,): True where a row has every one of `values`."""
        n_rows = count_rows(rows)
        has_each = np.ones(n_rows, dtype=np.bool_)
        for value in values:
            item = self.vocabulary.find(value)
            has = np.zeros(n_rows, dtype=np.bool_)
            for place in range(self.width if item >= 0 else 0):
                has |= self.items[place][rows] == item
            has_each &= has
        return has_each

    def _grow(self, row: int, width: int) -> None:
        self.width = max(self.width, width)
        self.items = grow(self.items, (self.width, row + 1), fill=-1)


def count_rows(rows: slice | Ints) -> int:
    """Number of rows of an index: row numbers, or a slice with both ends."""
    return int(rows.stop - rows.start) if isinstance(rows, slice) else rows.shape[0]


class OfferedResources:
    """Which resources the node of each row names among those that are allocatable, by index (see
    `NodeTable.item`). items: per row. is_needed: a pod that requests a resource fits no other row,
    as long as no sum of requests is below 0."""

    def __init__(self) -> None:
        self.is_needed = True
        self.items: list[tuple[int, ...]] = []
        self._rows: dict[int, list[int]] = {}

    def append(self) -> None:
        """Add a row that offers nothing."""
        self.items.append(())

    def pop(self) -> None:
        """Remove the last row."""
        self.write(len(self.items) - 1, ())
        self.items.pop()

    def write(self, row: int, items: tuple[int, ...]) -> bool:
        """Set what a row offers; False where it did already."""
        before = self.items[row]
        if before == items:
            return False
        self.items[row] = items
        for item in before:
            if item not in items:
                rows = self._rows[item]
                del rows[bisect_left(rows, row)]
                if not rows:
                    del self._rows[item]
        for item in items:
            if item not in before:
                rows = self._rows.setdefault(item, [])
                # Mostly at the end, since rows are added there.
                insort(rows, row)
        return True

    def rows(self, item: int) -> list[int]:
        """The rows that offer a resource, in order; read-only."""
        return self._rows.get(item, [])

    def rows_of(self, items: Iterable[int]) -> list[list[int]]:
        """As `rows`, of each of these resources."""
        return [*map(self._rows.get, items, repeat([]))]
