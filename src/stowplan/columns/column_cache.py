"""Kept columns: answers per row, brought up to date by re-evaluating the touched rows only.

Two pods whose rules read the same of them share a rule's answers, and a placement changes one
row. So an answer for all rows is kept under a key, with the generation it is true for; asked
again, it is evaluated for the rows that the journal names since, and for no others.

This holds for rules whose answer for a row depends on that row alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.columns.nodetable import NodeTable, Rows

KEPT_MAX = 1024
"""Columns kept per table; the least recently used goes first."""

ANEW_SHARE = 4
"""With more than one in so many rows touched, all are evaluated anew."""

_EXTRA = "kept columns"

Evaluate = Callable[[Rows], NDArray[Any]]


class _CachedColumn(msgspec.Struct):
    """An answer and the journal's generation up to which it is true."""

    answer: NDArray[Any]
    generation: int


class ColumnCache:
    """The kept answers of one table."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _CachedColumn] = OrderedDict()
        self.evaluated = 0

    @classmethod
    def of(cls, table: NodeTable) -> ColumnCache:
        """The kept answers of a table, made with the first question."""
        kept = table.extras.get(_EXTRA)
        if not isinstance(kept, cls):
            kept = table.extras[_EXTRA] = cls()
        return kept

    def column(self, key: Hashable, table: NodeTable, evaluate: Evaluate) -> NDArray[Any]:
        """(n_nodes,): the answer for every row; it must not be changed by whoever gets it.

        evaluate: gives the answers for rows, in their order. `evaluated` counts the rows that
        had to be asked.
        """
        generation = table.journal.generation
        kept = self._kept.get(key)
        if kept is not None and kept.answer.shape[0] == table.n_nodes:
            if kept.generation == generation:
                self._kept.move_to_end(key)
                return kept.answer
            touched = table.journal.since(kept.generation)
            if touched is not None and len(touched) * ANEW_SHARE <= table.n_nodes:
                rows = np.array([r for r in touched if r < table.n_nodes], dtype=np.int64)
                answer = kept.answer.copy()
                answer[rows] = evaluate(rows)
                self.evaluated += rows.shape[0]
                return self._keep(key, answer, generation)
        answer = np.array(evaluate(table.all_rows))
        self.evaluated += table.n_nodes
        return self._keep(key, answer, generation)

    def _keep(self, key: Hashable, answer: NDArray[Any], generation: int) -> NDArray[Any]:
        # Whoever got an earlier answer may still hold it, so an answer is never written again.
        answer.setflags(write=False)
        self._kept[key] = _CachedColumn(answer, generation)
        self._kept.move_to_end(key)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return answer
