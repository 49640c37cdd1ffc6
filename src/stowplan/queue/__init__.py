"""The scheduling queue: which pod is tried next, and when one that failed is tried again."""

from stowplan.queue.entry import SECOND, QueueEntry
from stowplan.queue.hints import Hints, Worth
from stowplan.queue.options import QueueOptions, in_ns
from stowplan.queue.queue import Place, SchedulingQueue

__all__ = [
    "SECOND",
    "Hints",
    "Place",
    "QueueEntry",
    "QueueOptions",
    "SchedulingQueue",
    "Worth",
    "in_ns",
]
