"""Dictionary encoding: distinct values as small integers, so that a rule is called once per
value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import count
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.array_types import Bools, numbers_of

V = TypeVar("V", bound=Hashable)


KEPT_MIN = 64
"""Vocabularies up to this size are never reduced."""


class Vocabulary(Generic[V]):
    """Distinct values in order of first appearance; an item number never changes its meaning.

    Values are never dropped, so copies and caches with item numbers stay valid. An owner whose
    values are mostly unused starts another vocabulary: see `without_unused`.
    """

    def __init__(self) -> None:
        self.values: list[V] = []
        self._items: dict[V, int] = {}
        self._enough = KEPT_MIN

    def __len__(self) -> int:
        return len(self.values)

    def add(self, value: V) -> int:
        """Item of `value`, added if new."""
        item = self._items.get(value)
        if item is None:
            item = self._items[value] = len(self.values)
            self.values.append(value)
        return item

    def add_all(self, values: Sequence[V | None]) -> NDArray[np.int32]:
        """int32 (n_values,): the item of each value, added if new, -1 for None."""
        distinct = dict.fromkeys(values)
        n_known = len(self.values)
        fresh = [v for v in distinct if v is not None and not (n_known and v in self._items)]
        self._items.update(zip(fresh, count(n_known), strict=False))
        self.values += fresh
        if len(fresh) == len(values):
            # As names of hosts are: no look-up for each of them.
            return np.arange(n_known, n_known + len(values), dtype=np.int32)
        # None is never an item.
        return numbers_of(values, self._items).astype(np.int32)

    def find(self, value: V) -> int:
        """Item of `value`, or -1 when unknown."""
        return self._items.get(value, -1)

    def find_all(self, values: Iterable[V]) -> list[int | None]:
        """The item of each value; None for those that are unknown."""
        return [*map(self._items.get, values)]

    def without_unused(
        self, used: NDArray[np.int32]
    ) -> tuple[Vocabulary[V], NDArray[np.int32]] | None:
        """A vocabulary of the items in `used` alone, and int32 (n_values + 1,) the new item of each
        old one, -1 if left out; None where that is not worthwhile.

        Checked only when there are twice as many values as were in use the last time, so that calls
        are cheap.
        """
        if len(self.values) <= self._enough:
            return None
        items = np.unique(used).tolist()
        self._enough = max(KEPT_MIN, 2 * len(items))
        if len(self.values) <= self._enough:
            return None
        fresh: Vocabulary[V] = Vocabulary()
        numbers = np.full(len(self.values) + 1, -1, dtype=np.int32)
        for item in items:
            numbers[item] = fresh.add(self.values[item])
        fresh._enough = self._enough
        return fresh, numbers

    def ask(self, rule: Callable[[V], bool]) -> Bools:
        """bool (n_values + 1,): the rule's result per item; the last entry, item -1, is False."""
        answers = np.zeros(len(self.values) + 1, dtype=np.bool_)
        for item, value in enumerate(self.values):
            answers[item] = rule(value)
        return answers
