"""FreeColumns: what nodes have idle, and will have, as columns, so that a task is compared at once.

Changed nodes are marked, and recomputed at the next read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from stowplan.batch.queue_models.volcano.volcano_amount import EPSILON, VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.columns.array_types import Bools, Floats, Ints

_CPU, _MEMORY = "cpu", "memory"


class FreeColumns:
    """Amounts of the nodes of a session, which have their position as `place`."""

    def __init__(self, nodes: Sequence[VolcanoNode]) -> None:
        self._nodes = nodes
        self._changed: list[int] = list(range(len(nodes)))
        self._columns: dict[tuple[str, bool], Floats] = {}
        for place, node in enumerate(nodes):
            node.place, node.changed = place, self._changed
        self._take_changes()

    def fits(self, request: VolcanoAmount, places: Ints | slice, *, later: bool) -> Bools:
        """bool (n_places,): nodes that have what is requested idle. later: or that will have it,
        once releasing tasks are gone and pipelined ones run."""
        self._take_changes()
        found: Bools = np.ones(len(self._nodes), dtype=np.bool_)[places]
        for name, amount in request.items():
            has = self._column(name, later=later)[places]
            found &= (amount < has) | (np.abs(amount - has) < EPSILON)
        return found

    def _column(self, name: str, *, later: bool) -> Floats:
        column = self._columns.get((name, later))
        if column is None:
            column = self._columns[name, later] = np.zeros(len(self._nodes), dtype=np.float64)
            self._fill(column, name, range(len(self._nodes)), later=later)
        return column

    def _fill(self, column: Floats, name: str, places: Iterable[int], *, later: bool) -> None:
        nodes = self._nodes
        for place in places:
            node = nodes[place]
            n = node.idle.get(name)
            if later:
                n = n + node.releasing.get(name) - node.pipelined.get(name)
            column[place] = n

    def _take_changes(self) -> None:
        if not self._changed:
            return
        places = set(self._changed)
        self._changed.clear()
        for (name, later), column in self._columns.items():
            self._fill(column, name, places, later=later)
