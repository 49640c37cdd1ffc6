"""What if: pods placed and taken away on the live columns, every step undone afterwards."""

from __future__ import annotations

import msgspec

from stowplan.columns.nodetable import NodeTable, TableError
from stowplan.columns.pods.podinfo import PodInfo, Port


class OverlayPlaced(msgspec.Struct, frozen=True):
    """A pod was put last on a row; these ports came into use by it."""

    row: int
    ports: frozenset[Port]


class OverlayTaken(msgspec.Struct, frozen=True):
    """A pod was taken off a row, where it stood at `index`; these ports went free with it."""

    row: int
    index: int
    info: PodInfo
    ports: frozenset[Port]


class Overlay:
    """A ledger of changes to a NodeTable. Costs what it changes, not what the table holds.

    Use it as a context manager: on leaving, whatever was not undone is, and the table is as it
    was, to the order of pods on a node. One overlay at a time, and no other change meanwhile.
    """

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._ledger: list[OverlayPlaced | OverlayTaken] = []

    def __enter__(self) -> Overlay:
        return self

    def __exit__(self, *_: object) -> None:
        self.rollback(0)

    def mark(self) -> int:
        """The present place in the ledger, to roll back to."""
        return len(self._ledger)

    def place(self, info: PodInfo, row: int) -> None:
        """Put a pod on a row, whatever node its spec names."""
        self._ledger.append(OverlayPlaced(row, self.table.place(row, info)))

    def take(self, uid: str, row: int) -> PodInfo:
        """Take a pod off a row; raises TableError when it is not there."""
        for index, info in enumerate(self.table.pods[row]):
            if info.uid == uid:
                ports = self.table.take(row, index)
                self._ledger.append(OverlayTaken(row, index, info, ports))
                return info
        raise TableError(f"pod {uid} is not on node {self.table.names[row]!r}")

    def rollback(self, mark: int) -> None:
        """Undo everything after `mark`, the last change first."""
        while len(self._ledger) > mark:
            change = self._ledger.pop()
            if isinstance(change, OverlayPlaced):
                self.table.unplace(change.row, change.ports)
            else:
                self.table.untake(change.row, change.index, change.info, change.ports)
