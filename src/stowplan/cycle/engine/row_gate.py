"""Row gate: kernels choose among some rows only, as the nodes of one topology domain.

Closed rows look full, so that a class that counts pods fits on none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stowplan.columns.array_types import Ints
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.cycle.engine.nominated_rows import CLOSED
from stowplan.framework import Snapshot


class RowGate:
    """Closes and opens rows of one table between runs of the engine."""

    def __init__(self, snapshot: Snapshot, class_arrays: ClassArrays) -> None:
        self._nodes = snapshot.nodes
        self._class_arrays = class_arrays

    @contextmanager
    def all_closed(self) -> Iterator[None]:
        """Close every row, until the end of the block."""
        rows = self._nodes.order
        self._add(rows, CLOSED)
        try:
            yield
        finally:
            self._add(rows, -CLOSED)

    @contextmanager
    def opened(self, rows: Ints) -> Iterator[None]:
        """Open these closed rows, until the end of the block. rows: int64, each once."""
        self._add(rows, -CLOSED)
        try:
            yield
        finally:
            self._add(rows, CLOSED)

    def _add(self, rows: Ints, amount: int) -> None:
        self._nodes.amounts[3][rows] += amount
        self._class_arrays.note(rows.tolist(), 0)
