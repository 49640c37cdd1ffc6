"""The scheduling queue: pop order, backoff, and requeueing of unschedulable pods by events."""

from typing import TYPE_CHECKING

from stowplan._deprecated import deprecated_names
from stowplan.objects.encoding.duration import SECOND
from stowplan.queue.options import QueueOptions, seconds_to_ns
from stowplan.queue.pod_record import PodRecord, SubQueue
from stowplan.queue.queueing_hints import QueueingHintMap, QueueingStrategy
from stowplan.queue.scheduling_queue import SchedulingQueue

__all__ = [
    "SECOND",
    "PodRecord",
    "QueueOptions",
    "QueueingHintMap",
    "QueueingStrategy",
    "SchedulingQueue",
    "SubQueue",
    "seconds_to_ns",
]

_OLD_NAMES = {
    "Hints": "QueueingHintMap",
    "QueueEntry": "PodRecord",
    "Place": "SubQueue",
    "Worth": "QueueingStrategy",
    "in_ns": "seconds_to_ns",
}
if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, _OLD_NAMES)
