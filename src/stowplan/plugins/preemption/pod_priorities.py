"""Priorities of the pods on nodes: where none is lower, there is no victim."""

from __future__ import annotations

from stowplan.columns import PodInfo
from stowplan.columns.nodetable import NodeTable
from stowplan.columns.pods.table_watcher import TableWatcher

NO_PODS = float("inf")


class AssignedPodPriorities(TableWatcher):
    """Number of pods on nodes by priority; updated by delta beside a table.

    lowest: the lowest priority of a pod on any node, NO_PODS where there is no pod.
    """

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._counts: dict[int, int] = {}
        self.lowest: float = NO_PODS

    def pod_added(self, row: int, info: PodInfo) -> None:
        """A pod was added to a row."""
        priority = info.pod.priority
        self._counts[priority] = self._counts.get(priority, 0) + 1
        self.lowest = min(self.lowest, priority)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """A pod was removed from a row."""
        priority = info.pod.priority
        self._counts[priority] -= 1
        if not self._counts[priority]:
            del self._counts[priority]
            if priority == self.lowest:
                self.lowest = min(self._counts, default=NO_PODS)
