"""FreeColumns: which nodes have what a task requests, as columns that follow changes.

Changed nodes are logged; a mask is brought up to date at the next read, at the cost of the nodes
that changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from stowplan.batch.queue_models.volcano.volcano_amount import EPSILON, VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.columns.array_types import Bools, Floats, Ints

MASKS_MAX = 256
"""Masks kept in a session; the oldest one is dropped first."""
FEW = 16
"""Up to this many changed nodes are compared one by one."""

RequestKey = tuple[float, float, tuple[tuple[str, float], ...]]


class _FitMask:
    """Nodes that have what is requested idle, and those that will have it; at: position in the log
    of changes up to which the masks are valid."""

    __slots__ = ("at", "later", "now")

    def __init__(self, now: Bools, later: Bools, at: int) -> None:
        self.now, self.later, self.at = now, later, at


class FreeColumns:
    """Amounts of the nodes of a session, which have their position as `place`."""

    def __init__(self, nodes: Sequence[VolcanoNode]) -> None:
        self._nodes = nodes
        self._log: list[int] = []
        # Resource, later -> the column, and the position in the log up to which it is valid.
        self._columns: dict[tuple[str, bool], tuple[Floats, int]] = {}
        self._masks: dict[RequestKey, _FitMask] = {}
        for place, node in enumerate(nodes):
            node.place, node.changed = place, self._log

    def fits(self, request: VolcanoAmount, places: Ints | slice, *, later: bool) -> Bools:
        """bool (n_places,): nodes that have what is requested idle. later: or that will have it,
        once releasing tasks are gone and pipelined ones run. Read-only for a slice of places."""
        mask = self._mask(request)
        return (mask.later if later else mask.now)[places]

    def lacking(self, request: VolcanoAmount) -> dict[str, Bools]:
        """Requested resource -> bool (n_nodes,): nodes that have too little of it, with what is
        being released."""
        return {
            name: ~(amount - self._column(name, later=True) < EPSILON)
            for name, amount in request.items()
            if amount >= EPSILON
        }

    def _mask(self, request: VolcanoAmount) -> _FitMask:
        key = request.cpu, request.memory, tuple((request.scalars or {}).items())
        mask, at = self._masks.get(key), len(self._log)
        if mask is None or at - mask.at > FEW:
            now, later = self._compare(request, later=False), self._compare(request, later=True)
            if mask is None and len(self._masks) >= MASKS_MAX:
                self._masks.pop(next(iter(self._masks)))
            mask = self._masks[key] = _FitMask(now, later, at)
        elif mask.at != at:
            for place in self.changed_since(mask.at):
                node = self._nodes[place]
                mask.now[place] = request.fits(node.idle)
                mask.later[place] = node.has_later(request)
            mask.at = at
        return mask

    @property
    def n_changes(self) -> int:
        """Number of changes so far."""
        return len(self._log)

    def changed_since(self, at: int) -> list[int]:
        """Places of the nodes that changed, with repetitions."""
        return self._log[at:]

    def _compare(self, request: VolcanoAmount, *, later: bool) -> Bools:
        found: Bools = np.ones(len(self._nodes), dtype=np.bool_)
        for name, amount in request.items():
            has = self._column(name, later=later)
            found &= (amount < has) | (np.abs(amount - has) < EPSILON)
        return found

    def _column(self, name: str, *, later: bool) -> Floats:
        """float64 (n_nodes,): read-only."""
        at = len(self._log)
        column, known_at = self._columns.get((name, later), (None, 0))
        if column is None:
            column = np.zeros(len(self._nodes), dtype=np.float64)
            self._fill(column, name, range(len(self._nodes)), later=later)
        elif known_at != at:
            self._fill(column, name, set(self.changed_since(known_at)), later=later)
        self._columns[name, later] = column, at
        return column

    def _fill(self, column: Floats, name: str, places: Iterable[int], *, later: bool) -> None:
        nodes = self._nodes
        for place in places:
            node = nodes[place]
            n = node.idle.get(name)
            if later:
                n = n + node.releasing.get(name) - node.pipelined.get(name)
            column[place] = n
