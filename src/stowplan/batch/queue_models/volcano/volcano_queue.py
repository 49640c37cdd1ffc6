"""VolcanoQueue: a Queue in a session.

Source: volcano master of 2026-08-20, pkg/scheduler/api/queue_info.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.volcano_task import seconds
from stowplan.objects.podgroup import Queue

ROOT = "root"
"""Name of the queue above all others."""
OPEN = "Open"
HIERARCHY, HIERARCHY_WEIGHTS = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"


class VolcanoQueue:
    """A queue."""

    __slots__ = ("created", "hierarchy", "name", "queue", "weight", "weights")

    def __init__(self, queue: Queue) -> None:
        annotations = queue.metadata.annotations
        self.name, self.queue = queue.name, queue
        self.created = seconds(queue.metadata.creation_timestamp)
        self.weight = queue.spec.weight
        self.hierarchy = annotations.get(HIERARCHY, "")
        self.weights = annotations.get(HIERARCHY_WEIGHTS, "")

    @property
    def is_open(self) -> bool:
        """True if it takes jobs."""
        return self.queue.status.state == OPEN

    @property
    def is_reclaimable(self) -> bool:
        """False if others may not reclaim from it."""
        return self.queue.spec.reclaimable is not False

    @property
    def priority(self) -> int:
        """Queues with a higher priority come first."""
        return self.queue.spec.priority
