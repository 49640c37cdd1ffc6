"""Work queue of keys with delays and exponential backoff of failures."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

RETRY_BASE_SECONDS = 0.005
RETRY_MAX_SECONDS = 1000.0
_DOUBLINGS_MAX = 30
"""Bounds the exponent: a pod status may claim two billion restarts."""


class WorkQueue(Generic[K]):
    """Keys by due time; a key that is added twice is due at the earlier time.

    Source: client-go v1.36, util/workqueue (delaying queue and exponential failure limiter).
    """

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._failures: dict[K, int] = {}
        self._added = 0

    def __len__(self) -> int:
        return len(self._due)

    @property
    def n_failing(self) -> int:
        """Number of keys whose last sync failed."""
        return len(self._failures)

    def add(self, key: K, at: float = 0.0) -> None:
        """Queue `key`, not before `at` (Unix seconds; 0.0: at once)."""
        known = self._due.get(key)
        if known is not None and known <= at:
            return
        self._due[key] = at
        self._added += 1
        heapq.heappush(self._heap, (at, self._added, key))

    def retry(self, key: K, now: float) -> None:
        """Queue `key` after a failure, with a delay that grows with consecutive failures."""
        times = self._failures.get(key, 0)
        self._failures[key] = times + 1
        self.add(key, now + backoff_seconds(times, RETRY_BASE_SECONDS, RETRY_MAX_SECONDS))

    def forget(self, key: K) -> None:
        """Reset the failure count of `key`, after a success."""
        self._failures.pop(key, None)

    def take(self, now: float) -> K | None:
        """Remove and return the next due key; None for none."""
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == at:
                del self._due[key]
                return key
        return None

    def next_at(self) -> float | None:
        """Due time of the earliest key; None for an empty queue."""
        while self._heap:
            at, _, key = self._heap[0]
            if self._due.get(key) == at:
                return at
            heapq.heappop(self._heap)
        return None


def backoff_seconds(n_before: int, base: float, most: float) -> float:
    """Exponential backoff: `base`, doubled for each failure before this one, at most `most`."""
    return min(base * 2.0 ** min(n_before, _DOUBLINGS_MAX), most)
