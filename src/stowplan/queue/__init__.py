"""The scheduling queue: which pod is tried next, and when one that failed is tried again."""

from stowplan.messages.durations import SECOND
from stowplan.queue.entry import QueueEntry
from stowplan.queue.options import QueueOptions, seconds_to_ns
from stowplan.queue.queueing_hints import QueueingHintMap, QueueingStrategy
from stowplan.queue.scheduling_queue import SchedulingQueue, SubQueue

__all__ = [
    "SECOND",
    "QueueEntry",
    "QueueOptions",
    "QueueingHintMap",
    "QueueingStrategy",
    "SchedulingQueue",
    "SubQueue",
    "seconds_to_ns",
]
