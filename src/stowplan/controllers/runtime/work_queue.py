"""A queue of keys to look at, now or later, each at most once, with patience for failures."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

RETRY_BASE_SECONDS = 0.005
RETRY_MAX_SECONDS = 1000.0


class WorkQueue(Generic[K]):
    """Keys by the moment they are due; a key that is added twice is due at the earlier moment.

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
        """Keys whose last look failed."""
        return len(self._failures)

    def add(self, key: K, at: float = 0.0) -> None:
        """Have `key` looked at, not before `at` (Unix seconds; 0.0: as soon as possible)."""
        known = self._due.get(key)
        if known is not None and known <= at:
            return
        self._due[key] = at
        self._added += 1
        heapq.heappush(self._heap, (at, self._added, key))

    def retry(self, key: K, now: float) -> None:
        """Have `key` looked at again after a failure: later with every failure in a row."""
        times = self._failures.get(key, 0)
        self._failures[key] = times + 1
        wait = min(RETRY_BASE_SECONDS * 2.0 ** min(times, 30), RETRY_MAX_SECONDS)
        self.add(key, now + wait)

    def forget(self, key: K) -> None:
        """A look at `key` went well: the next failure counts as the first."""
        self._failures.pop(key, None)

    def take(self, now: float) -> K | None:
        """The next key that is due, removed; None if there is none yet."""
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == at:
                del self._due[key]
                return key
        return None

    def next_at(self) -> float | None:
        """When the earliest key is due; None for an empty queue."""
        while self._heap:
            at, _, key = self._heap[0]
            if self._due.get(key) == at:
                return at
            heapq.heappop(self._heap)
        return None
