"""Agenda: virtual time, and what is to happen when."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from stowplan.objects.encoding.duration import SECOND


class EventQueue:
    """What is to happen, the earliest first; of one time, in the order in which it was put down.

    now: the time of what happened last; it never goes back.
    """

    __slots__ = ("_heap", "_last", "now")

    def __init__(self) -> None:
        self.now = 0
        self._last = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, when: int, act: Callable[..., None], *given: Any) -> None:
        """Let something happen at a time, now if that is over."""
        self._last += 1
        heappush(self._heap, (max(when, self.now), self._last, act, given))

    def after(self, delay: int, act: Callable[..., None], *given: Any) -> None:
        """Let something happen in a while."""
        self.at(self.now + delay, act, *given)

    def next(self) -> int | None:
        """When the next thing happens, None when nothing does any more."""
        return self._heap[0][0] if self._heap else None

    def step(self) -> None:
        """Let the next thing happen, and nothing else; raises IndexError when there is none."""
        when, _, act, given = heappop(self._heap)
        self.now = when
        act(*given)

    def run(self, until: int) -> None:
        """Let all happen that is due by a time, which then is the present."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.step()
        self.now = max(self.now, until)


def in_seconds(nanoseconds: int) -> float:
    """Virtual time as seconds, to the microsecond."""
    return round(nanoseconds / SECOND, 6)
