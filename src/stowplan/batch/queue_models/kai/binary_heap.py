"""A binary heap with the moves of Go's `container/heap`.

Queues of KAI-Scheduler are compared by what they use now, so that an order that was right when an
entry was put in may be wrong later: which entry comes out then depends on the very moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BinaryHeap(Generic[T]):
    """Entries in `items`. is_before: whether one comes before another. settled_at: noted by who
    uses it, when the first entry was last compared with others."""

    def __init__(self, is_before: Callable[[T, T], bool]) -> None:
        self.items: list[T] = []
        self.settled_at = (-1, -1)
        self._is_before = is_before

    def __len__(self) -> int:
        return len(self.items)

    @property
    def first(self) -> T:
        """The first entry."""
        return self.items[0]

    def push(self, item: T) -> None:
        """Put an entry in."""
        self.items.append(item)
        self._up(len(self.items) - 1)

    def pop(self) -> T:
        """Take the first entry out."""
        last = len(self.items) - 1
        self._swap(0, last)
        self._down(0, last)
        return self.items.pop()

    def fix_first(self) -> None:
        """Bring the first entry to its place after it changed."""
        self._down(0, len(self.items))

    def _swap(self, i: int, j: int) -> None:
        self.items[i], self.items[j] = self.items[j], self.items[i]

    def _up(self, j: int) -> None:
        while j > 0:
            i = (j - 1) // 2
            if not self._is_before(self.items[j], self.items[i]):
                return
            self._swap(i, j)
            j = i

    def _down(self, i: int, n: int) -> None:
        while (left := 2 * i + 1) < n:
            j, right = left, left + 1
            if right < n and self._is_before(self.items[right], self.items[left]):
                j = right
            if not self._is_before(self.items[j], self.items[i]):
                return
            self._swap(i, j)
            i = j
