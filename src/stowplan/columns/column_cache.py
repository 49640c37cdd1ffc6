"""Cached columns: answers per row, updated by evaluating changed rows only.

Pods with equal signatures share a plugin's answers, and a placement changes one row. An answer for
all rows is therefore cached under a key, with the journal generation that it is valid for; the next
call evaluates only the rows that changed since.

Valid only for plugins whose answer for a row depends on that row alone.
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
"""Columns cached per table; the least recently used is evicted first."""

ANEW_SHARE = 4
"""With more than one in this many rows changed, all rows are evaluated."""

_EXTRA = "kept columns"

Evaluate = Callable[[Rows], NDArray[Any]]


class _CachedColumn(msgspec.Struct):
    """An answer and the journal generation that it is valid for."""

    answer: NDArray[Any]
    generation: int


class ColumnCache:
    """Cached answers of one table."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _CachedColumn] = OrderedDict()
        self.evaluated = 0

    @classmethod
    def of(cls, table: NodeTable) -> ColumnCache:
        """The cached answers of a table, created on first use."""
        kept = table.extras.get(_EXTRA)
        if not isinstance(kept, cls):
            kept = table.extras[_EXTRA] = cls()
        return kept

    def column(self, key: Hashable, table: NodeTable, evaluate: Evaluate) -> NDArray[Any]:
        """(n_nodes,): the answer of every row; read-only.

        evaluate: returns answers for rows, in their order. `evaluated` counts the rows evaluated.
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
        # Callers may still hold an earlier answer, so arrays are never written again.
        answer.setflags(write=False)
        self._kept[key] = _CachedColumn(answer, generation)
        self._kept.move_to_end(key)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return answer
