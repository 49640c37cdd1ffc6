"""Node labels as columns: one small integer per row and key, created on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.array_types import Bools, Ints, grow
from stowplan.columns.vocabulary import Vocabulary

ABSENT = -1

SCANS_MAX = 16
"""Up to this many values are compared one by one; more are searched for together."""


class LabelColumn:
    """Values of one label key.

    codes: int32 (n_rows_max,), item in `vocabulary`, ABSENT where a node lacks the key.
    """

    def __init__(self) -> None:
        self.vocabulary: Vocabulary[str] = Vocabulary()
        self.codes: NDArray[np.int32] = np.full(0, ABSENT, dtype=np.int32)

    def write(self, row: int, value: str | None) -> bool:
        """Set one row; True when that changed it."""
        self.codes = grow(self.codes, (row + 1,), fill=ABSENT)
        code = ABSENT if value is None else self.vocabulary.add(value)
        changed = bool(self.codes[row] != code)
        self.codes[row] = code
        return changed

    def fill(self, values: Sequence[str | None]) -> None:
        """Set the first rows of a new column; None where a node lacks the key."""
        self.codes = self.vocabulary.add_all(values)

    def forget_unused(self, n_rows: int) -> None:
        """Drop values that no row has, if they are the majority."""
        codes = self.codes[:n_rows]
        left = self.vocabulary.without_unused(codes[codes != ABSENT])
        if left is not None:
            self.vocabulary, numbers = left
            self.codes = numbers[codes]

    def where(self, rule: Callable[[str | None], bool], rows: slice | Ints) -> Bools:
        """bool (n_rows,): the rule's result for each row's value; called once per distinct
        value."""
        answers = self.vocabulary.ask(rule)
        answers[ABSENT] = rule(None)
        chosen: Bools = answers[self.codes[rows]]
        return chosen

    def where_in(self, values: tuple[str, ...], rows: slice | Ints) -> Bools:
        """bool (n_rows,): rows whose value is one of `values`, by codes."""
        codes: NDArray[np.int32] = self.codes[rows]
        found = [item for item in map(self.vocabulary.find, values) if item >= 0]
        if not found:
            return np.zeros(codes.shape[0], dtype=np.bool_)
        if len(found) > SCANS_MAX:
            return np.isin(codes, found)
        chosen: Bools = codes == found[0]
        for item in found[1:]:
            chosen |= codes == item
        return chosen


class LabelColumns:
    """Columns of the label keys in use; `labels_of` returns the labels of each row."""

    def __init__(self, labels_of: list[Mapping[str, str]]) -> None:
        """labels_of: labels per row, read when a key is first used."""
        self._labels_of = labels_of
        self._columns: dict[str, LabelColumn] = {}

    def column(self, key: str) -> LabelColumn:
        """The column of `key`, created on first use."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = LabelColumn()
            column.fill([labels.get(key) for labels in self._labels_of])
        return column

    def write(self, row: int) -> None:
        """Re-encode one row after its labels changed."""
        labels = self._labels_of[row]
        for key, column in self._columns.items():
            column.write(row, labels.get(key))

    def forget_unused(self) -> None:
        """Drop values that no row has, if they are the majority; item numbers change."""
        for column in self._columns.values():
            column.forget_unused(len(self._labels_of))

    def active(self) -> Mapping[str, LabelColumn]:
        """The existing columns, by key."""
        return self._columns
