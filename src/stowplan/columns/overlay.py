"""Overlay: dry-run changes of pods on the live columns, each undone afterwards."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stowplan.columns.nodetable import NodeTable, TableError
from stowplan.columns.pods.podinfo import PodInfo, Port


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
