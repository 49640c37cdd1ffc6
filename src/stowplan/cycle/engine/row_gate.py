"""Row gate: kernels choose among some rows only, as the nodes of one topology domain.

Closed rows look full, so that a class that counts pods fits on none of them. Trials leave the table
as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stowplan.columns.array_types import Ints
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.cycle.engine.nominated_rows import CLOSED
from stowplan.framework import Snapshot


class RowGate:
    """Closes and opens rows of one table between runs of the engine. n_pods: of a trial. run: the
    kernel, for the pods of the trial; returns the rows of those that have one."""

    def __init__(
        self,
        snapshot: Snapshot,
        class_arrays: ClassArrays,
        n_pods: int,
        run: Callable[[], list[int]],
    ) -> None:
        self._nodes = snapshot.nodes
        self._class_arrays = class_arrays
        self._n_pods = n_pods
        self._run = run

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

    def trial(self, rows: Ints) -> list[int] | None:
        """The rows that the pods get of these closed ones, fewer than pods where no more have room;
        None where the kernel cannot tell. Nothing is changed."""
        _, requested, nonzero, pod_count = self._nodes.amounts
        saved = requested[:, rows], nonzero[:, rows], pod_count[rows]
        pod_count[rows] -= CLOSED
        listed = rows.tolist()
        self._class_arrays.note(listed, self._n_pods)
        placed = self._run()
        requested[:, rows], nonzero[:, rows], pod_count[rows] = saved
        self._class_arrays.note(listed, 0)
        is_cut = 0 < len(placed) < self._n_pods
        if is_cut and self._class_arrays.updates_image_counts(placed[-1]):
            return None
        return placed

    def _add(self, rows: Ints, amount: int) -> None:
        self._nodes.amounts[3][rows] += amount
        self._class_arrays.note(rows.tolist(), 0)
