"""Which rows have which items, where a row may have several (taints, declared features)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.growing import grown
from stowplan.columns.vocabulary import Vocabulary

V = TypeVar("V", bound=Hashable)


class Incidence(Generic[V]):
    """Items per row, padded with -1 to the widest row, so that a changed row is one write.

    items: int32 (n_rows_max, width). A row may hold an item twice; order is kept.
    """

    def __init__(self, vocabulary: Vocabulary[V] | None = None) -> None:
        self.vocabulary: Vocabulary[V] = Vocabulary() if vocabulary is None else vocabulary
        self.items: NDArray[np.int32] = np.full((0, 0), -1, dtype=np.int32)

    def write(self, row: int, values: Sequence[V]) -> None:
        """Replace the items of `row`."""
        width = max(self.items.shape[1], len(values))
        if row >= self.items.shape[0] or width > self.items.shape[1]:
            self.items = grown(self.items, (row + 1, width), fill=-1)
        self.items[row] = -1
        for place, value in enumerate(values):
            self.items[row, place] = self.vocabulary.add(value)

    def copy_row(self, source: Incidence[V], from_row: int, to_row: int) -> None:
        """Take over a row of `source`, which shares this vocabulary (or is this incidence)."""
        width = source.items.shape[1]
        if to_row >= self.items.shape[0] or width > self.items.shape[1]:
            self.items = grown(self.items, (to_row + 1, width), fill=-1)
        self.items[to_row] = -1
        self.items[to_row, :width] = source.items[from_row]

    def count_where(
        self, rule: Callable[[V], bool], rows: slice | NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """int64 (n_rows,): how many items of each of `rows` the rule holds for."""
        answers = self.vocabulary.ask(rule)
        chosen = self.items[rows]
        if not answers.any():
            return np.zeros(chosen.shape[0], dtype=np.int64)
        counts: NDArray[np.int64] = answers[chosen].sum(axis=1, dtype=np.int64)
        return counts

    def has_all(self, values: Sequence[V], rows: slice | NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool (n_rows,): True where a row has every one of `values`."""
        chosen = self.items[rows]
        has = np.ones(chosen.shape[0], dtype=np.bool_)
        for value in values:
            item = self.vocabulary.find(value)
            has &= (chosen == item).any(axis=1) if item >= 0 else False
        return has
