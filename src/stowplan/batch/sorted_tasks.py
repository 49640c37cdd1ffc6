"""Sorted tasks: the order of a heap whose keys never change, without comparisons in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SortedTasks(Generic[T]):
    """Pops the same items as a Heap whose keys never change, without a comparison function.

    Often only the first item is needed, so the rest is sorted at the second pop.
    """

    __slots__ = ("_is_begun", "_is_sorted", "_items", "_key")

    def __init__(
        self, key: Callable[[T], Any], items: Iterable[T], *, is_sorted: bool = False
    ) -> None:
        """key: unique per item. is_sorted: items are already sorted, last first."""
        self._key = key
        self._items = list(items)
        self._is_begun = self._is_sorted = is_sorted

    def __len__(self) -> int:
        return len(self._items)

    def pop(self) -> T:
        """Pop the first item; raises IndexError if there is none."""
        items = self._items
        if not self._is_begun and items:
            self._is_begun = True
            at = min(range(len(items)), key=lambda i: self._key(items[i]))
            items[at], items[-1] = items[-1], items[at]
        elif not self._is_sorted:
            items.sort(key=self._key, reverse=True)
            self._is_sorted = True
        return items.pop()
