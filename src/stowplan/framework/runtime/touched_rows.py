"""Touched rows: rows whose cached answer may be out of date.

An answer about a row that depends only on the node, its pods and its nominated pods holds until one
of these changes.
"""

from __future__ import annotations

from stowplan.framework.snapshot import Nominations, Snapshot


class TouchedRows:
    """Position of a reader in the changes of one table and its nominations.

    of_pods: for answers that name pods or depend on their order on the row, which changes when a
    pod is replaced by an equal version.
    """

    def __init__(self, *, of_pods: bool = False) -> None:
        self._of_pods = of_pods
        self._generation = -1
        self._swaps = 0
        self._nominations: Nominations | None = None
        self._nominated_at = 0

    def take(self, snapshot: Snapshot) -> list[int] | None:
        """Rows touched since the last call; None for all of them.

        The table must be the same in every call. Rows that no longer exist may be among them.
        """
        nodes, nominations = snapshot.nodes, snapshot.nominations
        generation, nominated_at = nodes.journal.generation, nominations.generation
        rows: list[int] | None = []
        if self._nominations is not nominations:
            rows = None
        elif generation != self._generation:
            rows = nodes.journal.since(self._generation)
        if rows is not None and self._of_pods and nodes.swaps.generation != self._swaps:
            swapped = nodes.swaps.since(self._swaps)
            rows = None if swapped is None else rows + swapped
        if rows is not None and nominated_at != self._nominated_at:
            names = nominations.since(self._nominated_at)
            rows = None if names is None else rows + [nodes.row(name) for name in names]
        self._generation, self._nominations = generation, nominations
        self._nominated_at, self._swaps = nominated_at, nodes.swaps.generation
        return [row for row in rows if row >= 0] if rows else rows
