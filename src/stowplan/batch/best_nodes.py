"""BestNodeCache: the best node for a task, cached per kind of task.

The tasks of a gang are of one kind, and placing one changes one row. So each kind of task has a
score column, with minus infinity for rows that do not fit; the next request re-evaluates the rows
that changed since and takes the maximum. Nothing is cached if the result for a row depends on other
rows (pod affinity, for example).
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from stowplan.batch.session_rules import ScoringError
from stowplan.batch.state.jobs import TaskInfo
from stowplan.batch.state.session_state import SessionState
from stowplan.batch.tiers import Hooks
from stowplan.columns.array_types import Floats, Ints

NEVER = -np.inf
ANEW_SHARE = 4
"""If more than one in this many rows changed, all rows are re-evaluated."""


class _CachedScores:
    """Cached scores. values: float64 (n_nodes,). seen: length of the ledger's `touched` that they
    include."""

    __slots__ = ("seen", "values")

    def __init__(self, values: Floats, seen: int) -> None:
        self.values = values
        self.seen = seen


class BestNodeCache:
    """Best rows for tasks, now or later. rng: breaks ties; None takes the first row."""

    def __init__(
        self, state: SessionState, hooks: Hooks, rng: np.random.Generator | None = None
    ) -> None:
        self._session_state = state
        self._hooks = hooks
        self._rng = rng
        self._kept: dict[Hashable, _CachedScores] = {}
        self._row_kinds: dict[Hashable, Hashable] = {}
        self._hopeless: dict[tuple[Hashable, bool], int] = {}

    def best(self, task: TaskInfo, *, later: bool = False) -> int:
        """The best row that fits, -1 for none.

        later: once releasing resources are free; otherwise on idle resources. No row fits if the
        task's queue would exceed its capability.
        """
        if not self._session_state.capabilities.allows(task, later=later):
            return -1
        freed = self._session_state.nodes.freed
        key = (self._session_state.nodes.wants(task), later)
        if self._hopeless.get(key) == freed:
            return -1
        try:
            values = self._values(task, later=later)
        except ScoringError:
            return -1
        if values is None:
            self._hopeless[key] = freed
            return -1
        row = int(values.argmax()) if values.shape[0] else -1
        if row < 0 or values[row] == NEVER:
            return -1
        if self._rng is None:
            return row
        top = np.flatnonzero(values == values[row])
        return int(top[self._rng.integers(top.shape[0])])

    def row_kind(self, task: TaskInfo) -> Hashable:
        """Key of tasks for which session plugins return the same result for a row; None if the
        result depends on other rows."""
        if task.kind not in self._row_kinds:
            self._row_kinds[task.kind] = self._hooks.row_kind(task)
        return self._row_kinds[task.kind]

    def _values(self, task: TaskInfo, *, later: bool) -> Floats | None:
        """float64 (n_nodes,): scores, NEVER for rows that do not fit; None if no row has enough
        resources."""
        row_kind = self.row_kind(task)
        nodes = self._session_state.nodes
        touched = nodes.touched
        key = (row_kind, nodes.wants(task), later)
        kept = None if row_kind is None else self._kept.get(key)
        if kept is not None:
            new = touched.since(kept.seen)
            if new is not None and len(new) * ANEW_SHARE <= nodes.n_nodes:
                if new:
                    rows = np.array(new, dtype=np.int64)
                    kept.values[rows] = self._evaluate(task, rows, later=later)
                    kept.seen = touched.generation
                return kept.values
        fits = nodes.fits_future(task) if later else nodes.fits_idle(task)
        rows = np.flatnonzero(fits)
        if rows.shape[0] == 0:
            return None
        values = np.full(nodes.n_nodes, NEVER)
        values[rows] = self._scored(task, rows)
        if row_kind is not None:
            self._kept[key] = _CachedScores(values, touched.generation)
        return values

    def _evaluate(self, task: TaskInfo, rows: Ints, *, later: bool) -> Floats:
        nodes = self._session_state.nodes
        fits = nodes.fits_future(task, rows) if later else nodes.fits_idle(task, rows)
        values = np.full(rows.shape[0], NEVER)
        if fits.any():
            values[fits] = self._scored(task, rows[fits])
        return values

    def _scored(self, task: TaskInfo, rows: Ints) -> Floats:
        """float64 (n_rows,): scores of rows that pass, NEVER for the others."""
        passing = self._hooks.passing(task, rows)
        values = np.full(rows.shape[0], NEVER)
        if passing.any():
            values[passing] = self._hooks.scores(task, rows[passing])
        return values
