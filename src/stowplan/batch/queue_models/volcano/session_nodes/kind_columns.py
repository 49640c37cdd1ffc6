"""KindColumns: for pods that are alike, the score of each node that can take one at once.

A column follows the nodes that change, so that the next pod of a kind costs these nodes and one
search for the highest score. It is there only where every predicate and every score of the session
depends on the node alone; other pods are evaluated node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stowplan.batch.queue_models.volcano.pod_rules import PASSES, RowScores
from stowplan.batch.queue_models.volcano.session_nodes.free_columns import FreeColumns
from stowplan.batch.queue_models.volcano.volcano_hooks import HookTable, VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Bools, Floats, Ints

NONE = float("-inf")
"""Score of a node that cannot take a pod at once."""
SOME = 4
"""Up to this many changed nodes are evaluated one by one."""
COLUMNS_MAX = 64
"""Columns kept in a session; the oldest one is dropped first."""

NodeScore = Callable[[VolcanoTask, Sequence[VolcanoNode]], Floats]


class KindColumn:
    """Scores of pods with one request and equal answers of the plugins.

    at: position in the log of changes up to which they are valid.
    """

    def __init__(
        self, columns: KindColumns, task: VolcanoTask, codes: list[Ints], batch: list[RowScores]
    ) -> None:
        self._columns, self._task = columns, task
        self._codes, self._batch = codes, batch
        self._passes: Bools = np.ones(len(columns.nodes), dtype=np.bool_)
        for found in codes:
            self._passes &= found == PASSES
        self._fill()

    def is_of(self, task: VolcanoTask, codes: list[Ints], batch: list[RowScores]) -> bool:
        """True if a task has the same request and the same answers."""
        return (
            task.request is self._task.request
            and all(mine is its for mine, its in zip(self._codes, codes, strict=True))
            and all(mine is its for mine, its in zip(self._batch, batch, strict=True))
        )

    def best(self) -> int:
        """Place of the node with the highest score, the first of several; -1 for none."""
        self._follow()
        place = int(np.argmax(self._scores))
        return place if self._scores[place] != NONE else -1

    def _fill(self) -> None:
        columns = self._columns
        self._scores = self._scores_of(slice(None), columns.nodes)
        self._at = columns.free.n_changes

    def _scores_of(self, places: Ints | slice, nodes: Sequence[VolcanoNode]) -> Floats:
        """float64 (n_places,): of these places and their nodes."""
        columns, task = self._columns, self._task
        rows = columns.rows[places]
        fits = self._passes[places] & columns.free.fits(task.request, places, later=False)
        fits &= columns.takes_more(rows, places)
        order = np.zeros(rows.shape[0], dtype=np.float64)
        for score in columns.by_node:
            order += score(task, nodes)
        batch = np.zeros(rows.shape[0], dtype=np.float64)
        for column in self._batch:
            batch += column.totals(rows)
        found: Floats = np.where(fits, order + batch, NONE)
        return found

    def _follow(self) -> None:
        columns = self._columns
        if self._at == columns.free.n_changes:
            return
        changed = columns.free.changed_since(self._at)
        if len(changed) > SOME:
            nodes = columns.nodes
            unique = list(dict.fromkeys(changed))
            places = np.array(unique, dtype=np.int64)
            self._scores[places] = self._scores_of(places, [nodes[place] for place in unique])
        else:
            for place in changed:
                self._scores[place] = self._score_at(place)
        self._at = columns.free.n_changes

    def _score_at(self, place: int) -> float:
        columns, task = self._columns, self._task
        node = columns.nodes[place]
        if not (self._passes[place] and task.request.fits(node.idle)):
            return NONE
        if not columns.takes_more(columns.rows[place : place + 1], slice(place, place + 1))[0]:
            return NONE
        order = 0.0
        for score in columns.by_node:
            order += float(score(task, [node])[0])
        batch = 0.0
        for column in self._batch:
            batch += column.at(node.row)
        return order + batch


class KindColumns:
    """Columns of a session."""

    def __init__(
        self, nodes: Sequence[VolcanoNode], rows: Ints, free: FreeColumns, hooks: HookTable
    ) -> None:
        self.nodes, self.rows, self.free = nodes, rows, free
        self.by_node: list[NodeScore] = list(hooks.all("node_order"))
        self._predicates = _owners(hooks, "predicate")
        self._scores = _owners(hooks, "batch_node_order")
        self._is_on = bool(nodes) and all(
            one.scores_by_node for one in _owners(hooks, "node_order")
        )
        self._kept: dict[tuple[Any, int], tuple[VolcanoTask, int, KindColumn | None]] = {}
        # By request: kinds that differ by what no plugin reads share a column.
        self._shared: dict[int, KindColumn] = {}

    def of(self, task: VolcanoTask) -> KindColumn | None:
        """The column of a task's kind, for which `prepare` was called; None where there is none."""
        if not self._is_on:
            return None
        key = task.kind, id(task.request)
        kept = self._kept.get(key)
        version = sum([one.version for one in self._predicates])
        # The task keeps its request alive, by whose identity it is found.
        if kept is None or kept[1] != version or kept[0].request is not task.request:
            if kept is None and len(self._kept) >= COLUMNS_MAX:
                self._kept.pop(next(iter(self._kept)))
            kept = self._kept[key] = task, version, self._column(task)
        return kept[2]

    def _column(self, task: VolcanoTask) -> KindColumn | None:
        codes = []
        for plugin in self._predicates:
            found = plugin.constant_codes(task)
            if found is None:
                return None
            codes.append(found)
        batch = []
        for plugin in self._scores:
            column = plugin.score_column(task)
            if column is None:
                return None
            batch.append(column)
        key = id(task.request)
        shared = self._shared.get(key)
        if shared is None or not shared.is_of(task, codes, batch):
            if shared is None and len(self._shared) >= COLUMNS_MAX:
                self._shared.pop(next(iter(self._shared)))
            shared = self._shared[key] = KindColumn(self, task, codes, batch)
        return shared

    def takes_more(self, rows: Ints, places: Ints | slice) -> Bools:
        """bool (n_rows,): nodes that the plugins let have one more pod."""
        found: Bools = np.ones(rows.shape[0], dtype=np.bool_)
        for plugin in self._predicates:
            found &= plugin.takes_more(rows, places)
        return found


def _owners(hooks: HookTable, hook: str) -> list[VolcanoPlugin]:
    return [call.__self__ for call in hooks.all(hook)]  # type: ignore[attr-defined]
