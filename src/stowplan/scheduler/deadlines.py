"""Deadlines: what is due next, when most of it is called off before its time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", str, int)

_STALE_MIN = 64


class Deadlines(Generic[K]):
    """At most one time per key, in whole nanoseconds.

    Calling off only forgets the time; what is left of it in the heap is dropped when it comes up,
    or when such leftovers outnumber the rest.
    """

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: K, at: int) -> None:
        """Something is due for `key` at this time, and no other."""
        self._at[key] = at
        heappush(self._heap, (at, key))
        if len(self._heap) > 2 * len(self._at) + _STALE_MIN:
            self._heap = [(at, key) for key, at in self._at.items()]
            heapify(self._heap)

    def clear(self, key: K) -> None:
        """Nothing is due for `key` any more."""
        self._at.pop(key, None)

    def next(self) -> int | None:
        """The earliest time, None when nothing is due at any time."""
        heap, times = self._heap, self._at
        while heap:
            at, key = heap[0]
            if times.get(key) == at:
                return at
            heappop(heap)
        return None

    def due(self, now: int) -> list[K]:
        """The keys whose time has come, the earliest first and then by key; they are cleared."""
        found: list[K] = []
        while (at := self.next()) is not None and at <= now:
            _, key = heappop(self._heap)
            del self._at[key]
            found.append(key)
        return found
