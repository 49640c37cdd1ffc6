"""A binary heap with the same steps as Go's container/heap.

Keys change while items are in the heap: a queue's share grows with every task placed. Which item is
popped then depends on the sequence of comparisons, so the steps must be the same as in the
original.

Source: Go, container/heap; kube-batch v0.5, util/priority_queue.go.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

Less = Callable[[T, T], bool]


class Heap(Generic[T]):
    """Pops the least item, according to the comparisons made so far."""

    __slots__ = ("_items", "_less")

    def __init__(self, less: Less[T], items: Iterable[T] = ()) -> None:
        """items: pushed one after the other."""
        self._less = less
        self._items: list[T] = []
        for item in items:
            self.push(item)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        """The items, in no particular order."""
        return iter(self._items)

    def copy(self) -> Heap[T]:
        """A heap of the same items, in the same state."""
        made: Heap[T] = Heap(self._less)
        made._items = list(self._items)
        return made

    def push(self, item: T) -> None:
        """Push an item."""
        items, less = self._items, self._less
        items.append(item)
        j = len(items) - 1
        while j > 0:
            i = (j - 1) // 2
            if not less(items[j], items[i]):
                return
            items[i], items[j] = items[j], items[i]
            j = i

    def pop(self) -> T:
        """Pop the first item; raises IndexError if the heap is empty."""
        items, less = self._items, self._less
        last = len(items) - 1
        items[0], items[last] = items[last], items[0]
        i = 0
        while (j := 2 * i + 1) < last:
            if j + 1 < last and less(items[j + 1], items[j]):
                j += 1
            if not less(items[j], items[i]):
                break
            items[i], items[j] = items[j], items[i]
            i = j
        return items.pop()


class HeapByKey(Heap[T]):
    """The same for keys that differ from one another and do not change while an item is in the
    heap: then every heap pops the items in one order, so the steps do not matter."""

    __slots__ = ("_key", "_pairs")

    def __init__(self, key: Callable[[T], Any], items: Iterable[T] = ()) -> None:
        """key: of an item; keys are compared, and no two items have equal ones."""
        self._key = key
        self._pairs: list[tuple[Any, T]] = [(key(item), item) for item in items]
        heapq.heapify(self._pairs)

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[Any, T]]) -> HeapByKey[T]:
        """A heap of the `pairs` of another one, to which nothing is pushed."""
        made: HeapByKey[T] = cls(_no_key)
        made._pairs = list(pairs)
        return made

    @property
    def pairs(self) -> tuple[tuple[Any, T], ...]:
        """Keys and items as they lie in the heap now."""
        return tuple(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[T]:
        """The items, in no particular order."""
        return iter([item for _, item in self._pairs])

    def copy(self) -> HeapByKey[T]:
        """A heap of the same items."""
        made: HeapByKey[T] = HeapByKey(self._key)
        made._pairs = list(self._pairs)
        return made

    def push(self, item: T) -> None:
        """Push an item."""
        heapq.heappush(self._pairs, (self._key(item), item))

    def pop(self) -> T:
        """Pop the first item; raises IndexError if the heap is empty."""
        return heapq.heappop(self._pairs)[1]


def _no_key(item: object) -> Any:
    raise TypeError("nothing is pushed to a heap of pairs")
