"""A queue with plugins that say what a test tells them to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stowplan.framework import OK, ObjectStore, Status, unresolvable
from stowplan.framework.clusterevents import (
    NODE,
    QUEUE_POD,
    QUEUE_SKIP,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    on,
)
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import DEFAULT_SCHEDULER, Pod
from stowplan.plugins.priority_sort import PrioritySort
from stowplan.queue import PodRecord, QueueOptions, SchedulingQueue
from stowplan.queue.pre_enqueue import PreEnqueueGates
from stowplan.queue.queueing_hints import QueueingHintMap
from stowplan.testing.builders import pod

NODE_ADD = ClusterEvent(NODE, Action.ADD)
NODE_LABEL = ClusterEvent(NODE, Action.UPDATE_NODE_LABEL)
NODE_DELETE = ClusterEvent(NODE, Action.DELETE)


def helps_named(of: Pod, old: object, new: object) -> QueueingHint:
    """A hint for events that bring the names of the pods that they help."""
    named = new if isinstance(new, Sequence) else ()
    return QUEUE_POD if of.name in named else QUEUE_SKIP


REGISTERED: Mapping[str, Sequence[ClusterEventWithHint]] = {
    "Picky": (on(NODE, Action.ADD | Action.UPDATE_NODE_TAINT, helps_named),),
    "Easy": (on(NODE, Action.ADD),),
    "Gate": (on(NODE, Action.UPDATE_NODE_LABEL),),
}
"""Picky asks a hint, Easy always says yes, Gate is a gate that looks again at new labels."""


class Harness:
    """A queue, with the pods that are listed and the names of those that Gate keeps out."""

    def __init__(self, options: QueueOptions | None = None) -> None:
        self.listed: dict[str, Pod] = {}
        self.closed: set[str] = set()
        self.queue = SchedulingQueue(
            PrioritySort().sort_key,
            PreEnqueueGates({DEFAULT_SCHEDULER: [("Gate", self._gate)]}),
            QueueingHintMap({DEFAULT_SCHEDULER: REGISTERED}, ["Spread"]),
            self.listed.get,
            ObjectStore(),
            options,
        )

    def _gate(self, of: Pod) -> Status:
        return unresolvable("closed") if of.name in self.closed else OK

    def add(self, name: str, at_s: float = 0, priority: int = 0) -> Pod:
        """List a pod and add it to the queue."""
        made = pod(name, priority=priority, uid=f"{name}-uid")
        self.listed[made.key] = made
        self.queue.add(made, ns(at_s))
        return made

    def pop(self) -> PodRecord:
        """The entry that is popped; there must be one."""
        entry = self.queue.pop()
        assert entry is not None
        return entry

    def fail(self, entry: PodRecord, at_s: float, *plugins: str, pending: str = "") -> str:
        """Put an entry back, refused by these plugins, or by an error where there are none."""
        waits = {pending} if pending else ()
        return self.queue.add_unschedulable_if_not_present(
            entry, ns(at_s), refused_by=plugins, pending_on=waits
        )

    def park(self, name: str, at_s: float, *plugins: str, priority: int = 0) -> PodRecord:
        """Add, pop and refuse a pod at once."""
        self.add(name, at_s, priority)
        entry = self.pop()
        self.fail(entry, at_s, *plugins)
        return entry

    def pods_by_queue(self) -> dict[str, list[str]]:
        """Names by place, empty places left out."""
        queue = self.queue
        places = {
            "active": queue.active.in_order(),
            "backoff": queue.backoff.refused.in_order(),
            "failed": queue.backoff.failed.in_order(),
            "unschedulable": [entry for entry in queue.unschedulable_pods if not entry.gated_by],
            "gated": [entry for entry in queue.unschedulable_pods if entry.gated_by],
        }
        found = {place: [e.pod.name for e in entries] for place, entries in places.items()}
        found["flight"] = queue.in_flight.pods()
        return {place: names for place, names in found.items() if names}


def ns(seconds: float) -> int:
    """Seconds as nanoseconds."""
    return round(seconds * SECOND)
