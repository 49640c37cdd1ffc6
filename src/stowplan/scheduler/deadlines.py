"""Deadlines: a heap of due times in which most entries are cancelled before they expire."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", str, int)

_STALE_MIN = 64


class Deadlines(Generic[K]):
    """At most one due time per key, in nanoseconds.

    `clear` leaves the heap entry in place; stale entries are dropped when they reach the top, or
    when they outnumber the live ones.
    """

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: K, at: int) -> None:
        """Set the key's due time, replacing any earlier one."""
        self._at[key] = at
        heappush(self._heap, (at, key))
        if len(self._heap) > 2 * len(self._at) + _STALE_MIN:
            self._heap = [(at, key) for key, at in self._at.items()]
            heapify(self._heap)

    def clear(self, key: K) -> None:
        """Remove the key's due time."""
        self._at.pop(key, None)

    def next(self) -> int | None:
        """Return the earliest due time, or None if there is none."""
        heap, times = self._heap, self._at
        while heap:
            at, key = heap[0]
            if times.get(key) == at:
                return at
            heappop(heap)
        return None

    def due(self, now: int) -> list[K]:
        """Remove and return the keys that are due, earliest first, then by key."""
        found: list[K] = []
        while (at := self.next()) is not None and at <= now:
            _, key = heappop(self._heap)
            del self._at[key]
            found.append(key)
        return found
