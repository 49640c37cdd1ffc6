"""Work queue of keys with delays and exponential backoff of failures."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from stowplan.objects.timing.due_times import DueHeap, exponential_backoff

K = TypeVar("K", bound=Hashable)

RETRY_BASE_SECONDS = 0.005
RETRY_MAX_SECONDS = 1000.0


class WorkQueue(DueHeap[K, float]):
    """Keys by due time (Unix seconds); a key that is added twice is due at the earlier time.

    Source: client-go v1.36, util/workqueue (delaying queue and exponential failure limiter).
    """

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        super().__init__()
        self._failures: dict[K, int] = {}

    @property
    def n_failing(self) -> int:
        """Number of keys whose last sync failed."""
        return len(self._failures)

    def add(self, key: K, at: float = 0.0) -> None:
        """Queue `key`, not before `at` (0.0: at once)."""
        known = self._live.get(key)
        if known is None or known[0] > at:
            self.set(key, at)

    def retry(self, key: K, now: float) -> None:
        """Queue `key` after a failure, with a delay that grows with consecutive failures."""
        times = self._failures.get(key, 0)
        self._failures[key] = times + 1
        self.add(key, now + exponential_backoff(times, RETRY_BASE_SECONDS, RETRY_MAX_SECONDS))

    def forget(self, key: K) -> None:
        """Reset the failure count of `key`, after a success."""
        self._failures.pop(key, None)
