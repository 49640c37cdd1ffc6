"""Backoff queue: pods that failed and wait before the next attempt.

The backoff doubles with each failure. Rejected pods and pods that failed by an error wait in
separate heaps: a rejected pod may be popped early when the active queue is empty, because that
costs only a decision; after an error (the API server does not answer) the backoff protects the API
server and is kept.

With windows, expiry times are rounded down to whole seconds, and a backoff is over when a later
second has begun. Pods of the same window leave in the order of the active queue.

Source: kube-scheduler v1.36, backend/queue/backoff_queue.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.objects.encoding.duration import SECOND
from stowplan.queue.heap import KeyedHeap, SortKey
from stowplan.queue.options import QueueOptions, seconds_to_ns
from stowplan.queue.pod_record import PodRecord


class BackoffQueue:
    """Two heaps: `refused`, and `failed` for pods whose last attempt ended with an error."""

    def __init__(self, options: QueueOptions, rank: SortKey) -> None:
        """rank: sort key of the active queue."""
        self._initial = seconds_to_ns(options.initial_s)
        self._max = seconds_to_ns(options.max_s)
        self._rank = rank
        self._windows = options.pops_from_backoff
        self._separates_errors = options.hints
        # Without hints a backoff is over at its expiry time itself, not after it.
        self._ends_late = options.hints or options.pops_from_backoff
        self.refused = KeyedHeap(self._ends_and_rank if self._windows else self._ends)
        self.failed = KeyedHeap(self._ends)

    def use(self, options: QueueOptions, rank: SortKey) -> None:
        """Change the durations, also of pods that wait already, and the sort key."""
        self._initial = seconds_to_ns(options.initial_s)
        self._max = seconds_to_ns(options.max_s)
        self._rank = rank
        self.refused.use_rank(self._ends_and_rank if self._windows else self._ends)
        self.failed.use_rank(self._ends)

    def __len__(self) -> int:
        return len(self.refused) + len(self.failed)

    def __contains__(self, key: str) -> bool:
        return key in self.refused.live or key in self.failed.live

    def __iter__(self) -> Iterator[PodRecord]:
        yield from self.refused
        yield from self.failed

    def expiry(self, entry: PodRecord) -> int | None:
        """When the backoff of `entry` expires, in the queue or not; None when it has no backoff."""
        count = entry.errors or entry.refusals
        if count == 0 or self._max == 0:
            return None
        ends = int(entry.added_at) + self._duration(count)
        return ends - ends % SECOND if self._windows else ends

    def is_waiting(self, entry: PodRecord, now: int) -> bool:
        """True while the backoff of `entry` is not over."""
        if not entry.errors and not entry.refusals:
            return False
        ends = self.expiry(entry)
        return ends is not None and not self._is_over(ends, now)

    def put(self, entry: PodRecord) -> None:
        """Add an entry to the heap of its last result."""
        (self.refused if entry.refusers or not self._separates_errors else self.failed).put(entry)

    def get(self, key: str) -> PodRecord | None:
        """The entry of a key."""
        return self.refused.get(key) or self.failed.get(key)

    def take(self, key: str) -> PodRecord | None:
        """Remove the entry of a key and return it."""
        return self.refused.take(key) or self.failed.take(key)

    def refresh(self, key: str) -> None:
        """Compute an entry's sort key again after its pod has changed."""
        (self.refused if key in self.refused else self.failed).refresh(key)

    def pop_before_expiry(self) -> PodRecord | None:
        """Pop the rejected entry whose backoff expires first, over or not; None without windows."""
        return self.refused.pop() if self._windows else None

    def pop_over(self, now: int) -> list[PodRecord]:
        """Remove and return all entries whose backoff is over, rejected ones first."""
        found = []
        for heap in (self.refused, self.failed):
            while (first := heap.peek()) is not None and not self.is_waiting(first, now):
                heap.take(first.key)
                found.append(first)
        return found

    def next_over(self) -> int | None:
        """Earliest time at which `pop_over` returns an entry; None when the queue is empty."""
        firsts = (self.refused.peek(), self.failed.peek())
        ends = [self._ends(entry) for entry in firsts if entry is not None]
        if not ends:
            return None
        if self._windows:
            return min(ends) + SECOND
        return min(ends) + (1 if self._ends_late else 0)

    def _duration(self, count: int) -> int:
        if self._initial > self._max >> (count - 1):
            return self._max
        return self._initial << (count - 1)

    def _ends_and_rank(self, entry: PodRecord) -> tuple[int, object]:
        return self._ends(entry), self._rank(entry)

    def _ends(self, entry: PodRecord) -> int:
        """`expiry` as a sort key: -1 for an entry without backoff."""
        ends = self.expiry(entry)
        return -1 if ends is None else ends

    def _is_over(self, ends: int, now: int) -> bool:
        if self._windows:
            now -= now % SECOND
        return ends < now if self._ends_late else ends <= now
