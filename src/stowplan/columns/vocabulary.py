"""Dictionary encoding: distinct values as small integers, so a rule is asked once per value."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

V = TypeVar("V", bound=Hashable)

Bools = NDArray[np.bool_]


class Vocabulary(Generic[V]):
    """Distinct values in order of first appearance; an item number never changes its meaning.

    Values are never dropped, so copies and caches that hold item numbers stay valid.
    """

    def __init__(self) -> None:
        self.values: list[V] = []
        self._items: dict[V, int] = {}

    def __len__(self) -> int:
        return len(self.values)

    def add(self, value: V) -> int:
        """The item of `value`, new if need be."""
        item = self._items.get(value)
        if item is None:
            item = self._items[value] = len(self.values)
            self.values.append(value)
        return item

    def find(self, value: V) -> int:
        """The item of `value`, or -1 when it has never been seen."""
        return self._items.get(value, -1)

    def ask(self, rule: Callable[[V], bool]) -> Bools:
        """bool (n_values + 1,): the rule's answer per item; the last entry, item -1, is False."""
        answers = np.zeros(len(self.values) + 1, dtype=np.bool_)
        for item, value in enumerate(self.values):
            answers[item] = rule(value)
        return answers
