"""Base of what is kept beside a node table and updated by delta."""

from __future__ import annotations

from typing import Any, Self

from stowplan.columns.nodetable import NodeTable
from stowplan.columns.pods.pod_watcher import PodWatcher


class TableWatcher(PodWatcher):
    """A PodWatcher that is created with the first use of a table; it ignores changes of rows."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table

    @classmethod
    def of(cls, table: NodeTable) -> Self:
        """The watcher of a table, the same one each time."""
        kept: Any = table.extras.get(cls.__qualname__)
        if kept is None:
            kept = table.extras[cls.__qualname__] = cls(table)
            kept.begin()
        watcher: Self = kept
        return watcher

    @classmethod
    def existing(cls, table: NodeTable) -> Self | None:
        """The watcher of a table; None where it was not needed so far."""
        watcher: Any = table.extras.get(cls.__qualname__)
        found: Self | None = watcher
        return found

    def begin(self) -> None:
        """Read the table and follow its changes; a watcher that reads it faster at once, without a
        call per pod, has its own."""
        self._table.watch(self)
