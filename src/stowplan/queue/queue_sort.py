"""The order of pods in the queue: the profile's QueueSort, as a rank to sort by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stowplan.framework.plugin import QueuedPod
from stowplan.framework.runtime.framework import Framework
from stowplan.queue.entry import QueueEntry
from stowplan.queue.heap import SortKey

LessFunction = Callable[[QueuedPod, QueuedPod], bool]


class LessSortKey:
    """A rank for a QueueSort that only compares: two of them compare as their pods do.

    It keeps what the pod looked like when it was sorted, because a heap falls apart when the
    rank of something inside it changes.
    """

    __slots__ = ("_less", "_queued")

    def __init__(self, less: LessFunction, entry: QueueEntry) -> None:
        self._less = less
        self._queued = QueuedPod(entry.pod, entry.added_at)

    def __lt__(self, other: LessSortKey) -> bool:
        return self._less(self._queued, other._queued)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LessSortKey):
            return NotImplemented
        return not (self < other or other < self)

    __hash__ = None  # type: ignore[assignment]


def sort_key_by_less(less: LessFunction) -> SortKey:
    """The rank that a comparison stands for."""
    return lambda entry: LessSortKey(less, entry)


def by_arrival(entry: QueueEntry) -> int:
    """One rank for all: entries of equal rank leave in the order in which they came."""
    return 0


def queue_sort_key(framework: Framework) -> SortKey:
    """The rank by the QueueSort of a profile; by its key, where it gives one."""
    key: Callable[[QueuedPod], Any] | None = framework.sort_key()
    return sort_key_by_less(framework.less) if key is None else key
