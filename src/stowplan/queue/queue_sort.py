"""Sort key of the active queue, from the profile's QueueSort plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stowplan.framework.plugin import QueuedPod
from stowplan.framework.runtime.framework import Framework
from stowplan.queue.heap import SortKey
from stowplan.queue.pod_record import PodRecord

LessFunction = Callable[[QueuedPod, QueuedPod], bool]


class LessSortKey:
    """Sort key for a QueueSort plugin that only has `less`.

    It keeps the pod as it was when the key was computed, because a heap breaks when a sort key in
    it changes.
    """

    __slots__ = ("_less", "_queued")

    def __init__(self, less: LessFunction, entry: PodRecord) -> None:
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
    """A sort key function from a comparison."""
    return lambda entry: LessSortKey(less, entry)


def by_arrival(entry: PodRecord) -> int:
    """Equal for all entries: they leave in order of arrival."""
    return 0


def queue_sort_key(framework: Framework) -> SortKey:
    """The sort key of a profile's QueueSort plugin: its `key` method where it has one."""
    key: Callable[[QueuedPod], Any] | None = framework.sort_key()
    return sort_key_by_less(framework.less) if key is None else key
