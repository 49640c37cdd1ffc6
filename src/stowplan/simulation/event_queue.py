"""Event queue: virtual time, and the actions that are due."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from stowplan.objects.encoding.duration import SECOND


class EventQueue:
    """Actions by time; those of one time run in the order in which they were added.

    No `DueHeap`: actions have no keys and are never cancelled, and this runs for every event.

    now: virtual time; never decreases.
    """

    __slots__ = ("_heap", "_last", "now")

    def __init__(self) -> None:
        self.now = 0
        self._last = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, when: int, act: Callable[..., None], *given: Any) -> None:
        """Schedule an action at a time; a time in the past counts as now."""
        self._last += 1
        heappush(self._heap, (max(when, self.now), self._last, act, given))

    def after(self, delay: int, act: Callable[..., None], *given: Any) -> None:
        """Schedule an action after a delay in nanoseconds."""
        self.at(self.now + delay, act, *given)

    def next(self) -> int | None:
        """Time of the next action; None when the queue is empty."""
        return self._heap[0][0] if self._heap else None

    def step(self) -> None:
        """Run the next action; raises IndexError when the queue is empty."""
        when, _, act, given = heappop(self._heap)
        self.now = when
        act(*given)

    def run(self, until: int) -> None:
        """Run all actions due by `until`, and advance the time to it."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.step()
        self.now = max(self.now, until)


def in_seconds(nanoseconds: int) -> float:
    """Nanoseconds as seconds, rounded to microseconds."""
    return round(nanoseconds / SECOND, 6)
