"""The order of pods in the queue: the profile's QueueSort, as a rank to sort by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stowplan.framework.plugin import QueuedPod
from stowplan.framework.runtime import Framework
from stowplan.queue.entry import QueueEntry
from stowplan.queue.heap import Rank

Less = Callable[[QueuedPod, QueuedPod], bool]


class ByLess:
    """A rank for a QueueSort that only compares: two of them compare as their pods do.

    It keeps what the pod looked like when it was sorted, because a heap falls apart when the
    rank of something inside it changes.
    """

    __slots__ = ("_less", "_queued")

    def __init__(self, less: Less, entry: QueueEntry) -> None:
        self._less = less
        self._queued = QueuedPod(entry.pod, entry.added_at)

    def __lt__(self, other: ByLess) -> bool:
        return self._less(self._queued, other._queued)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ByLess):
            return NotImplemented
        return not (self < other or other < self)

    __hash__ = None  # type: ignore[assignment]


def rank_by(less: Less) -> Rank:
    """The rank that a comparison stands for."""
    return lambda entry: ByLess(less, entry)


def by_arrival(entry: QueueEntry) -> int:
    """One rank for all: entries of equal rank leave in the order in which they came."""
    return 0


def rank_of(framework: Framework) -> Rank:
    """The rank by the QueueSort of a profile; by its key, where it gives one."""
    key: Callable[[QueuedPod], Any] | None = framework.sort_key()
    return rank_by(framework.less) if key is None else key
