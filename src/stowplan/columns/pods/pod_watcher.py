"""What follows the rows and pods of a node table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stowplan.columns.pods.podinfo import PodInfo


class PodWatcher(Protocol):
    """Receives changes of rows and pods (for example to count matching pods).

    An updated pod is reported as removed and added; as replaced where nothing has changed that
    columns read, the spec, labels, start and end, but not to those with `counts_alike`.
    """

    counts_alike: bool = False

    def pod_replaced(self, row: int, before: PodInfo, after: PodInfo) -> None:
        """A pod of a row has another version."""
        self.pod_removed(row, before)
        self.pod_added(row, after)

    def pod_added(self, row: int, info: PodInfo) -> None:
        """A pod was added to a row."""

    def pods_added(self, placed: Sequence[PodInfo], rows: Sequence[int]) -> None:
        """Pods were added, each to its row. The rows have all of them already, so that
        `pod_added` must not read there which pods came before."""
        for info, row in zip(placed, rows, strict=True):
            self.pod_added(row, info)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """A pod was removed from a row."""

    def row_added(self, row: int) -> None:
        """A node was added on a new last row; its pods, if any, are reported next."""

    def row_moved(self, source: int, target: int) -> None:
        """The node of row `source`, the last one, moved to `target`."""

    def row_dropped(self, row: int) -> None:
        """The last row was removed; its pods have been reported as removed."""
