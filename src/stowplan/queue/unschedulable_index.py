"""Standing: who keeps unschedulable pods in the queue's place, see `scheduler.standing`."""

from __future__ import annotations

from typing import Any, Protocol

from stowplan.framework.clusterevents import ClusterEvent
from stowplan.queue.entry import QueueEntry


class UnschedulableIndex(Protocol):
    """Who keeps unschedulable pods in the queue's place, as long as it can."""

    def move(self, event: ClusterEvent, old: Any, new: Any, now: int) -> bool:
        """As `SchedulingQueue.move`; False where the queue has to, and has them all again."""

    def flush(self, moment: int) -> bool:
        """The same, of pods that have waited since before a moment."""

    def release(self, entry: QueueEntry) -> None:
        """An entry is the queue's again."""

    def settle(self) -> None:
        """All entries are the queue's again."""
