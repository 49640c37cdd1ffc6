"""UnschedulableIndex: keeps unschedulable pods by class in place of the queue."""

from __future__ import annotations

from typing import Any, Protocol

from stowplan.framework.clusterevents import ClusterEvent
from stowplan.queue.pod_record import PodRecord


class UnschedulableIndex(Protocol):
    """Keeps unschedulable pods in place of the queue; see `scheduler.lanes`."""

    def move(self, event: ClusterEvent, old: Any, new: Any, now: int) -> bool:
        """Same as `SchedulingQueue.move`; False when all entries are back in the queue, which must
        move them."""

    def flush(self, moment: int) -> bool:
        """Same as `SchedulingQueue.flush_unschedulable` for pods older than `moment`; False as in
        `move`."""

    def release(self, entry: PodRecord) -> None:
        """Return an entry to the queue."""

    def settle(self) -> None:
        """Return all entries to the queue."""
