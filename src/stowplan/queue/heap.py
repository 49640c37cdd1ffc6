"""KeyedHeap: a heap of entries that can also be found, changed and removed by key.

Heap items are tuples, so that comparing them stays inside the interpreter's C code. Removing an
entry only forgets it; the tuple left behind is dropped when it comes up, or when such tuples
outnumber the live ones. Entries of equal rank leave in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from stowplan.queue.entry import QueueEntry

SortKey = Callable[[QueueEntry], Any]
"""What an entry is sorted by, computed when it is put in; smaller comes first."""

_Item = tuple[Any, int, QueueEntry]

_STALE_MIN = 64


class KeyedHeap:
    """Entries by key, the one of the smallest rank first. live: by key, to read the keys."""

    __slots__ = ("_arrivals", "_heap", "_rank", "_returns", "live")

    def __init__(self, rank: SortKey) -> None:
        self._rank = rank
        self._heap: list[_Item] = []
        self.live: dict[str, _Item] = {}
        self._arrivals = 0
        self._returns = 0

    def __len__(self) -> int:
        return len(self.live)

    def __contains__(self, key: str) -> bool:
        return key in self.live

    def put(self, entry: QueueEntry) -> None:
        """Add an entry, in place of one with the same key."""
        self._arrivals = arrival = self._arrivals + 1
        item = (self._rank(entry), arrival, entry)
        heap, live = self._heap, self.live
        live[entry.key] = item
        heappush(heap, item)
        if len(heap) > 2 * len(live) + _STALE_MIN:
            self._sweep()

    def put_first(self, entry: QueueEntry) -> None:
        """Put back an entry that was popped: ahead of those of its rank."""
        self._returns -= 1
        item = (self._rank(entry), self._returns, entry)
        self.live[entry.key] = item
        heappush(self._heap, item)

    @property
    def arrivals(self) -> int:
        """How many entries have been put in so far, those put back apart."""
        return self._arrivals

    def get(self, key: str) -> QueueEntry | None:
        """The entry of a key."""
        item = self.live.get(key)
        return None if item is None else item[2]

    def refresh(self, key: str) -> None:
        """Sort an entry again after something changed that its rank is made of."""
        rank, arrival, entry = self.live[key]
        now = self._rank(entry)
        if now != rank:
            self.live[key] = item = (now, arrival, entry)
            heappush(self._heap, item)
            if len(self._heap) > 2 * len(self.live) + _STALE_MIN:
                self._sweep()

    def take(self, key: str) -> QueueEntry | None:
        """Remove the entry of a key and return it."""
        item = self.live.pop(key, None)
        if item is None:
            return None
        if len(self._heap) > 2 * len(self.live) + _STALE_MIN:
            self._sweep()
        return item[2]

    def peek(self) -> QueueEntry | None:
        """The first entry, left in place."""
        heap, live = self._heap, self.live
        while heap:
            item = heap[0]
            if live.get(item[2].key) is item:
                return item[2]
            heappop(heap)
        return None

    def pop(self) -> QueueEntry | None:
        """Remove the first entry and return it."""
        heap, live = self._heap, self.live
        while heap:
            item = heappop(heap)
            entry = item[2]
            if live.get(entry.key) is item:
                del live[entry.key]
                return entry
        return None

    def in_order(self) -> list[QueueEntry]:
        """Every entry, in the order in which they would be popped."""
        return [item[2] for item in sorted(self.live.values())]

    def __iter__(self) -> Iterator[QueueEntry]:
        """Every entry, in no order that means anything."""
        return (item[2] for item in self.live.values())

    def _sweep(self) -> None:
        """Drop the tuples left behind."""
        self._heap = list(self.live.values())
        heapify(self._heap)
