"""Overlay: dry-run changes of pods on the live columns, each undone afterwards.

A ReleasingOverlay also tells idle resources from those that are being released. A pod that will
leave stays on its row, and its requests are releasing; a pipelined pod is placed onto releasing
resources and takes none that are idle. Amounts are the table's own columns plus one column for each
of the two; there is no second copy of what nodes offer and pods request.

Source: kube-batch v0.5, api/node_info.go (Idle, Used, Releasing).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.columns.nodeinfo import wrapped
from stowplan.columns.nodetable import NodeTable, Rows, TableError
from stowplan.columns.pods.podinfo import PodInfo, Port

ALL = slice(None)
"""All rows of a column."""


class OverlayPlaced(msgspec.Struct, frozen=True):
    """A pod was added last on a row; it started to use these ports."""

    row: int
    ports: frozenset[Port]


class OverlayTaken(msgspec.Struct, frozen=True):
    """A pod was removed from position `index` of a row; these ports became free."""

    row: int
    index: int
    info: PodInfo
    ports: frozenset[Port]


class OverlayPipelined(msgspec.Struct, frozen=True):
    """A pod was added last on a row, onto resources that are being released."""

    row: int
    ports: frozenset[Port]
    requested: Mapping[str, int]


class OverlayReleased(msgspec.Struct, frozen=True):
    """A pod of a row will leave; its requests are being released."""

    row: int
    requested: Mapping[str, int]


OverlayChange = OverlayPlaced | OverlayTaken | OverlayPipelined | OverlayReleased


class Overlay:
    """A ledger of temporary changes to a NodeTable. Costs what it changes, not the table's size.

    Use it as a context manager: on exit all changes are undone and the table is as before,
    including the order of pods on a node. Only one overlay at a time, and no other change
    meanwhile.
    """

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._ledger: list[OverlayChange] = []

    def __enter__(self) -> Overlay:
        return self

    def __exit__(self, *_: object) -> None:
        self.rollback(0)

    def mark(self) -> int:
        """Current position in the ledger, for rollback."""
        return len(self._ledger)

    def place(self, info: PodInfo, row: int) -> None:
        """Add a pod to a row, whatever node its spec names."""
        self._ledger.append(OverlayPlaced(row, self.table.place(row, info)))

    def take(self, uid: str, row: int) -> PodInfo:
        """Remove a pod from a row; raises TableError when it is not on it."""
        for index, info in enumerate(self.table.pods[row]):
            if info.uid == uid:
                ports = self.table.take(row, index)
                self._ledger.append(OverlayTaken(row, index, info, ports))
                return info
        raise TableError(f"pod {uid} is not on node {self.table.names[row]!r}")

    def rollback(self, mark: int) -> None:
        """Undo all changes after `mark`, the latest first."""
        while len(self._ledger) > mark:
            self._undo(self._ledger.pop())

    def _undo(self, change: OverlayChange) -> None:
        match change:
            case OverlayPlaced(row, ports) | OverlayPipelined(row, ports):
                self.table.unplace(row, ports)
            case OverlayTaken(row, index, info, ports):
                self.table.untake(row, index, info, ports)
            case OverlayReleased():
                pass


class ReleasingOverlay(Overlay):
    """Placed, pipelined and released pods over a NodeTable. Amounts are in base units.

    n_pipelined: pipelined pods and holds. n_released: pods that will leave. While it has changes,
    the rows of the table must not change.
    """

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.n_pipelined = 0
        self.n_released = 0
        # By resource, int64 (n_nodes,): requests of pipelined pods; released minus promised ones.
        self._pipelined: dict[str, Ints] = {}
        self._releasing: dict[str, Ints] = {}
        self._n_held: Ints | None = None

    # Columns: int64 (n_rows,); new arrays, except for pod_count.

    def idle(self, resource: str, rows: Rows = ALL) -> Ints:
        """Allocatable amount that no pod takes; pipelined pods take nothing that is idle."""
        table = self.table
        item, n_nodes = table.resources.find(resource), table.n_nodes
        allocatable, requested = table.amounts[:2]
        if not 0 <= item < allocatable.shape[0]:
            return np.zeros(n_nodes, dtype=np.int64)[rows]
        idle: Ints = allocatable[item, :n_nodes][rows] - requested[item, :n_nodes][rows]
        pipelined = self._pipelined.get(resource)
        if pipelined is not None:
            idle += pipelined[rows]
        return idle

    def future(self, resource: str, rows: Rows = ALL) -> Ints:
        """Amount that is idle once the pods that will leave are gone and the pipelined ones run."""
        future = self.idle(resource, rows)
        releasing = self._releasing.get(resource)
        if releasing is not None:
            future += releasing[rows]
        return future

    def releasing(self, resource: str, rows: Rows = ALL) -> Ints:
        """Amount that is being released, without what pipelined pods and holds will take of it."""
        column = self._releasing.get(resource)
        if column is None:
            return np.zeros(self.table.n_nodes, dtype=np.int64)[rows]
        return column[rows].copy()

    def pod_count(self, rows: Rows = ALL) -> Ints:
        """Number of pods, holds included; read-only."""
        count: Ints = self.table.pod_count[rows]
        return count if self._n_held is None else count + self._n_held[rows]

    # Changes.

    def pipeline(self, info: PodInfo, row: int) -> None:
        """Add a pod to a row, onto resources that are being released."""
        requested = info.footprint.requested
        ports = self.table.place(row, info)
        self._ledger.append(OverlayPipelined(row, ports, requested))
        self._count_pipelined(row, requested, 1)

    def release(self, row: int, requested: Mapping[str, int]) -> None:
        """A pod of a row with these requests will leave."""
        self._ledger.append(OverlayReleased(row, requested))
        self._count_released(row, requested, 1)

    def hold(self, row: int, requested: Mapping[str, int], sign: int = 1) -> None:
        """Keep releasing resources for a pod that is not placed; `rollback` does not end it.

        sign: -1 ends it.
        """
        if self._n_held is None:
            self._n_held = np.zeros(self.table.n_nodes, dtype=np.int64)
        self._n_held[row] += sign
        self.n_pipelined += sign
        self._add(self._releasing, row, requested, -sign)

    def _undo(self, change: OverlayChange) -> None:
        super()._undo(change)
        match change:
            case OverlayPipelined(row, _, requested):
                self._count_pipelined(row, requested, -1)
            case OverlayReleased(row, requested):
                self._count_released(row, requested, -1)

    def _count_pipelined(self, row: int, requested: Mapping[str, int], sign: int) -> None:
        self.n_pipelined += sign
        self._add(self._pipelined, row, requested, sign)
        self._add(self._releasing, row, requested, -sign)

    def _count_released(self, row: int, requested: Mapping[str, int], sign: int) -> None:
        self.n_released += sign
        self._add(self._releasing, row, requested, sign)

    def _add(
        self, columns: dict[str, Ints], row: int, requested: Mapping[str, int], sign: int
    ) -> None:
        for resource, amount in requested.items():
            if amount:
                column = columns.get(resource)
                if column is None:
                    column = columns[resource] = np.zeros(self.table.n_nodes, dtype=np.int64)
                column[row] = wrapped(int(column[row]) + sign * amount)
