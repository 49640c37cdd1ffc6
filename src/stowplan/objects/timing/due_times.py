"""Due times: a heap in which each key is due once, and the exponential backoff of retries.

Times are whole nanoseconds or Unix seconds; a heap has one of both.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", int, float)

_STALE_MIN = 64
_DOUBLINGS_MAX = 40
"""Bounds the exponent: a pod status may claim two billion restarts."""


class DueHeap(Generic[K, T]):
    """At most one due time per key; keys of one time are due in the order in which they were set.

    Most entries are moved or cleared before they are due. That leaves the heap's entry in place;
    stale entries are dropped when they reach the top, or when they outnumber the live ones.

    Two heaps are not of this kind: `simulation.event_queue`, whose actions have no keys and are
    never cancelled, and which runs for every event of a replay; and `queue.heap`, whose entries are
    sorted by what a plugin says and not by time.
    """

    __slots__ = ("_heap", "_live", "_n_set")

    def __init__(self) -> None:
        self._live: dict[K, tuple[T, int, K]] = {}
        self._heap: list[tuple[T, int, K]] = []
        self._n_set = 0

    def __len__(self) -> int:
        return len(self._live)

    def set(self, key: K, at: T) -> None:
        """Set the key's due time, replacing any earlier one."""
        self._n_set += 1
        item = self._live[key] = (at, self._n_set, key)
        heap = self._heap
        heappush(heap, item)
        if len(heap) > 2 * len(self._live) + _STALE_MIN:
            self._heap = list(self._live.values())
            heapify(self._heap)

    def at(self, key: K) -> T | None:
        """The key's due time; None if it has none."""
        item = self._live.get(key)
        return None if item is None else item[0]

    def clear(self, key: K) -> None:
        """Remove the key's due time."""
        self._live.pop(key, None)

    def next_at(self) -> T | None:
        """The earliest due time; None if there is none."""
        heap, live = self._heap, self._live
        while heap:
            item = heap[0]
            if live.get(item[2]) is item:
                return item[0]
            heappop(heap)
        return None

    def take(self, now: T) -> K | None:
        """Remove and return the next key that is due; None for none."""
        heap, live = self._heap, self._live
        while heap and heap[0][0] <= now:
            item = heappop(heap)
            key = item[2]
            if live.get(key) is item:
                del live[key]
                return key
        return None

    def due(self, now: T) -> list[K]:
        """Remove and return the keys that are due, earliest first."""
        found: list[K] = []
        while (at := self.next_at()) is not None and at <= now:
            _, _, key = heappop(self._heap)
            del self._live[key]
            found.append(key)
        return found


def exponential_backoff(n_before: int, first: T, most: T) -> T:
    """How long to wait: `first`, doubled for each failure before this one, at most `most`."""
    wait: T = first * 2 ** min(n_before, _DOUBLINGS_MAX)
    return min(wait, most)
