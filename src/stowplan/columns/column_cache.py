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
from stowplan.objects.node import Node

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


class _NodeColumn(msgspec.Struct):
    """An answer about these nodes, and the journal generation at which they were last compared."""

    answer: NDArray[Any]
    nodes: list[Node]
    generation: int


class ColumnCache:
    """Cached answers of one table."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _CachedColumn] = OrderedDict()
        self._of_nodes: dict[Hashable, _NodeColumn] = {}
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

    def of_nodes(self, key: Hashable, table: NodeTable, evaluate: Evaluate) -> NDArray[Any]:
        """(n_nodes,): as `column`, where the answer for a row depends on the node alone: pods on it
        change nothing. There are few such keys, and none is evicted."""
        generation, nodes = table.journal.generation, table.nodes
        kept = self._of_nodes.get(key)
        if kept is not None and kept.generation == generation:
            return kept.answer
        # Mostly the same objects, whose comparison costs next to nothing.
        if kept is not None and kept.nodes == nodes:
            kept.generation = generation
            return kept.answer
        answer = self._changed(kept, nodes, evaluate)
        answer.setflags(write=False)
        self._of_nodes[key] = _NodeColumn(answer, list(nodes), generation)
        return answer

    def _changed(
        self, kept: _NodeColumn | None, nodes: list[Node], evaluate: Evaluate
    ) -> NDArray[Any]:
        if kept is None or len(kept.nodes) != len(nodes):
            rows = np.arange(len(nodes), dtype=np.int64)
            self.evaluated += rows.shape[0]
            return np.array(evaluate(rows))
        pairs = enumerate(zip(nodes, kept.nodes, strict=True))
        rows = np.array([row for row, (now, then) in pairs if now is not then], dtype=np.int64)
        answer = kept.answer.copy()
        answer[rows] = evaluate(rows)
        self.evaluated += rows.shape[0]
        return answer

    def _keep(self, key: Hashable, answer: NDArray[Any], generation: int) -> NDArray[Any]:
        # Callers may still hold an earlier answer, so arrays are never written again.
        answer.setflags(write=False)
        self._kept[key] = _CachedColumn(answer, generation)
        self._kept.move_to_end(key)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return answer
