"""Base of what plugins keep beside a node table and update by delta."""

from __future__ import annotations

from typing import Self

from stowplan.columns import NodeTable
from stowplan.columns.nodetable import PodWatcher


class TableWatcher(PodWatcher):
    """A PodWatcher that is created with the first use of a table; it ignores changes of rows."""

    @classmethod
    def of(cls, table: NodeTable) -> Self:
        """The watcher of a table, the same one each time."""
        found = table.extras.get(cls.__qualname__)
        if not isinstance(found, cls):
            found = table.extras[cls.__qualname__] = cls()
            table.watch(found)
        return found
