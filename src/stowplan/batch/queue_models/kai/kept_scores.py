"""Scores of all nodes for pods of which the columns tell where they fit: kept for a session, and
counted again for the rows that change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from stowplan.batch.queue_models.kai.state.kai_amount import Amount
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import KaiTask
from stowplan.batch.queue_models.kai.state.node_rows import (
    Column,
    Mask,
    NodeRows,
    Rows,
    best_first,
    card_or_cpu,
)

NO_PLACE = -np.inf
"""The score of a row on which a pod does not fit."""
FreeRange: TypeAlias = tuple[float, float]
"""The least and the most that is free of a resource, see `NodeRows.free_range`."""
FEW = 6
"""So many rows take longer by columns than one by one."""


class RowRules(Protocol):
    """What a session says of plain pods, see `KaiSession`: where they may go whatever is free,
    which does not change, and scores, each by what is on the row and by the range."""

    def may_go(self, task: KaiTask) -> Mask: ...

    def scores_of_rows(self, task: KaiTask, rows: Rows, free_range: FreeRange) -> Column: ...

    def score_of(self, task: KaiTask, node: KaiNode, free_range: FreeRange) -> float: ...


class _KnownScores:
    """Scores by row. request: it, so that its id stays its own. mark: see `NodeRows.mark`."""

    __slots__ = ("free_range", "mark", "may_go", "request", "scores")

    def __init__(self, request: Amount, may_go: Mask) -> None:
        self.request = request
        self.may_go = may_go
        self.scores: Column = np.full(len(may_go), NO_PLACE)
        self.mark = (-1, 0)
        self.free_range: FreeRange = (0.0, 0.0)


class _KnownRange:
    """The range of what is free of a resource, and the column that it is of."""

    __slots__ = ("free", "free_range", "mark")

    def __init__(self) -> None:
        self.free: Column = np.zeros(0)
        self.free_range: FreeRange = (0.0, 0.0)
        self.mark = (-1, 0)


class NodeScores:
    """Scores of the rows for plain pods, by request and by what else they depend on."""

    def __init__(self, rows: NodeRows) -> None:
        self._rows = rows
        self._known: dict[tuple[int, str, bool], _KnownScores] = {}
        self._ranges: dict[int, _KnownRange] = {}

    def best_first(self, task: KaiTask, rules: RowRules) -> Iterator[int]:
        """Rows that a pod fits on, from the best score down, equal ones in their order; by the
        scores that they have when the first one is asked for."""
        scores = self._scores(task, rules)
        if not len(scores):
            return
        best = int(scores.argmax())
        if scores[best] == NO_PLACE:
            return
        left = scores.copy()
        yield best
        fitting = np.flatnonzero(left != NO_PLACE)
        others = best_first(left[fitting], fitting)
        next(others)
        yield from others

    def _scores(self, task: KaiTask, rules: RowRules) -> Column:
        """Scores by row as they are now."""
        rows = self._rows
        rows.refresh()
        place = card_or_cpu(task)
        key = id(task.request), task.constraints, task.needs_card
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _KnownScores(task.request, rules.may_go(task))
        free_range = self._free_range(place)
        changed: Sequence[int] | None = rows.changed_since(known.mark)
        if changed is None or free_range != known.free_range:
            changed = range(len(known.scores))
        known.mark, known.free_range = rows.mark, free_range
        if len(changed) <= FEW:
            for row in changed:
                node = rows.nodes[row]
                fits = known.may_go[row] and node.fits_later(task)
                known.scores[row] = rules.score_of(task, node, free_range) if fits else NO_PLACE
            return known.scores
        again: Rows = np.array(changed, dtype=np.intp)
        known.scores[again] = NO_PLACE
        fitting = again[rows.fits_on(task, True, again) & known.may_go[again]]
        if len(fitting):
            known.scores[fitting] = rules.scores_of_rows(task, fitting, free_range)
        return known.scores

    def _free_range(self, place: int) -> FreeRange:
        """The range of all nodes. Rows that do not leave an end of it, or pass one, leave it."""
        rows = self._rows
        known = self._ranges.setdefault(place, _KnownRange())
        changed = rows.changed_since(known.mark)
        known.mark = rows.mark
        free, offered = rows.later[place], rows.offered[place]
        low, high = known.free_range
        is_known = changed is not None
        for row in changed or ():
            before, now = known.free[row], free[row]
            known.free[row] = now
            if before == now or offered[row] == 0:
                continue
            is_known &= low < before < high
            low, high = min(low, now), max(high, now)
        if not is_known:
            known.free = free.copy()
            low, high = rows.free_range(place, None)
        known.free_range = float(low), float(high)
        return known.free_range
