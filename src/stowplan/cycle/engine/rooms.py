"""Rooms: what many classes need, beside what rows have left: who may fit somewhere now."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable
from stowplan.columns.engine import arrays as at
from stowplan.cycle.engine.classes import PodClass
from stowplan.cycle.engine.sheets import Sheets
from stowplan.framework import Snapshot

NOT_ASKED = np.iinfo(np.int64).min
"""An amount that every row has left."""


class ClassRooms:
    """See `framework.decider.Rooms`. All classes have a plan, room for it, and no terms."""

    def __init__(
        self,
        classes: Sequence[PodClass],
        sheets: Sheets,
        nodes: NodeTable,
        is_planned: Callable[[PodClass, Snapshot], bool],
    ) -> None:
        self._nodes = nodes
        self._is_planned = is_planned
        # Whom evictions could help most: all others are helped by fewer.
        self._first = max(classes, key=lambda one: one.pod.priority)
        params = sheets.classes[[one.number for one in classes]]
        self._pods_item = int(params[0, at.PODS])
        wanted = [
            {
                int(row[at.WANTED + 2 * i]): int(row[at.WANTED + 2 * i + 1])
                for i in range(int(row[at.N_WANTED]))
            }
            for row in params
        ]
        self._items = np.array(sorted({item for one in wanted for item in one}), dtype=np.int64)
        # int64 (n_classes, n_items): base units.
        self._wanted = np.array(
            [[one.get(item, NOT_ASKED) for item in self._items.tolist()] for one in wanted],
            dtype=np.int64,
        ).reshape(len(classes), len(self._items))
        self._passes: NDArray[np.bool_] = sheets.passes(params[:, at.STATIC])

    def hold(self, snapshot: Snapshot) -> bool:
        """See `Rooms.hold`."""
        one = self._first
        if snapshot.nodes is not self._nodes or not self._is_planned(one, snapshot):
            return False
        members = one.framework.at("postFilter")
        return not any(m.may_help is None or m.may_help(one.pod, snapshot) for m in members)

    def may_fit(self, rows: Sequence[int] | None) -> NDArray[np.bool_]:
        """See `Rooms.may_fit`."""
        nodes = self._nodes
        those = np.arange(nodes.n_nodes) if rows is None else np.array(rows, dtype=np.int64)
        allocatable, requested, _, pod_count = nodes.amounts
        cells = np.ix_(self._items, those)
        free = allocatable[cells] - requested[cells]
        fits: NDArray[np.bool_] = (self._wanted[:, :, None] <= free).all(axis=1, keepdims=False)
        fits &= self._passes[:, those]
        fits &= pod_count[those] < allocatable[self._pods_item, those]
        found: NDArray[np.bool_] = fits.any(axis=1)
        return found


def rooms_of(
    classes: Sequence[PodClass],
    sheets: Sheets,
    snapshot: Snapshot,
    is_planned: Callable[[PodClass, Snapshot], bool],
) -> ClassRooms | None:
    """What these classes need; None where one of them has no plan that says so."""
    if not all(is_planned(one, snapshot) for one in classes):
        return None
    numbers = [one.number for one in classes]
    if not classes or not sheets.classes[numbers, at.HAS_ROOM].all():
        return None
    return ClassRooms(classes, sheets, snapshot.nodes, is_planned)
