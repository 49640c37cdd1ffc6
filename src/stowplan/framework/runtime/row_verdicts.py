"""Verdicts of one class of pods on every row, nominated pods counted, kept until a row changes.

Preemptors come one after the other, and each of them changes a row or two: the one it is nominated
to, and the one of its victims. For row-local filters the verdicts on all other rows stand.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable
from stowplan.framework.node_to_status import NodeToStatus
from stowplan.framework.runtime.kept_in_table import kept_in
from stowplan.framework.runtime.touched_rows import TouchedRows
from stowplan.framework.snapshot import Snapshot
from stowplan.framework.status import OK, Status

CELLS_MAX = 4_000_000
"""Rows times classes; the least recently used class is dropped first."""

STATUSES_MAX = 4096
"""Distinct statuses of a class, before its verdicts are dropped."""

ONE_BY_ONE_MAX = 8
"""With more changed rows than this, all rows are filtered together."""

_EXTRA = "row verdicts"


class RowVerdicts:
    """The verdicts of one class."""

    def __init__(self) -> None:
        # Per row the number of its status; 0 where it passes.
        self._numbers: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._statuses: dict[Status, int] = {OK: 0}
        self._touched = TouchedRows()
        # The row whose verdict is that of one pod only: it does not count itself there.
        self._special = -1
        self._shape = -1

    @classmethod
    def of(cls, table: NodeTable, key: Hashable) -> RowVerdicts:
        """The verdicts of a class, created on first use."""
        return kept_in(table, _EXTRA, key, cls, CELLS_MAX // max(1, table.n_nodes))

    def follow(
        self,
        snapshot: Snapshot,
        own: int,
        plugins: Sequence[str],
        filter_all: Callable[[], NodeToStatus],
        filter_row: Callable[[int], Status],
    ) -> NodeToStatus:
        """The verdicts on all rows as they are now.

        own: the row that the pod itself is nominated to, -1 for none. plugins: names of the active
        filters. filter_all: filters all rows. filter_row: filters one row, nominated pods counted.
        """
        nodes = snapshot.nodes
        touched = self._touched.take(snapshot)
        rows = None if touched is None else {*touched, own, self._special} - {-1}
        is_known = nodes.shape == self._shape and self._numbers.shape[0] == nodes.n_nodes
        self._special, self._shape = own, nodes.shape
        if rows is None or not is_known or len(rows) > ONE_BY_ONE_MAX:
            verdicts = filter_all()
            self._take(verdicts, nodes.n_nodes)
            return verdicts
        for row in rows:
            status = filter_row(row)
            self._numbers[row] = 0 if status.is_success else self._number(status)
        return NodeToStatus.numbered(self._numbers, tuple(self._statuses), plugins)

    def _take(self, verdicts: NodeToStatus, n_nodes: int) -> None:
        if len(self._statuses) > STATUSES_MAX:
            self._statuses = {OK: 0}
        self._numbers = np.zeros(n_nodes, dtype=np.int32)
        for status, rows in verdicts.refusals():
            self._numbers[rows] = self._number(status)

    def _number(self, status: Status) -> int:
        return self._statuses.setdefault(status, len(self._statuses))
