"""KeyedHeap: a heap whose entries can be found, updated and removed by key.

Heap items are tuples, so that comparisons stay in the interpreter's C code. Removing an entry only
deletes it from the index (as in `objects.timing.due_times`, whose entries are sorted by time
instead of what a plugin says); its tuple is dropped when it reaches the top, or when such stale
tuples outnumber the live ones. Entries with equal sort keys leave in order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from stowplan.queue.pod_record import PodRecord

SortKey = Callable[[PodRecord], Any]
"""Sort key of an entry, computed when the entry is added; the smallest is popped first."""

HeapItem = tuple[Any, int, PodRecord]
"""Sort key, number of arrival, and the entry."""

_STALE_MIN = 64

SORTED_TIMES_MAX = 4
"""A heap of at most so many times as many items as are wanted is sorted."""


class KeyedHeap:
    """Entries by key, smallest sort key first. live: key -> heap item, for reading keys."""

    __slots__ = ("_arrivals", "_heap", "_rank", "_returns", "live")

    def __init__(self, rank: SortKey) -> None:
        self._rank = rank
        self._heap: list[HeapItem] = []
        self.live: dict[str, HeapItem] = {}
        self._arrivals = 0
        self._returns = 0

    def __len__(self) -> int:
        return len(self.live)

    def __contains__(self, key: str) -> bool:
        return key in self.live

    def put(self, entry: PodRecord) -> None:
        """Add an entry; replaces one with the same key."""
        self._arrivals = arrival = self._arrivals + 1
        item = (self._rank(entry), arrival, entry)
        heap, live = self._heap, self.live
        live[entry.key] = item
        heappush(heap, item)
        if len(heap) > 2 * len(live) + _STALE_MIN:
            self._sweep()

    def put_all(self, entries: Iterable[PodRecord]) -> None:
        """Add entries, one after the other, none of which is here."""
        heap, live, rank, arrival = self._heap, self.live, self._rank, self._arrivals
        for entry in entries:
            arrival += 1
            live[entry.key] = item = (rank(entry), arrival, entry)
            heappush(heap, item)
        self._arrivals = arrival
        if len(heap) > 2 * len(live) + _STALE_MIN:
            self._sweep()

    def use_rank(self, rank: SortKey) -> None:
        """Sort by another key; entries of equal sort keys stay in order of arrival."""
        self._rank = rank
        self.live = {
            key: (rank(entry), arrival, entry) for key, (_, arrival, entry) in self.live.items()
        }
        self._sweep()

    def put_first(self, entry: PodRecord) -> None:
        """Return a popped entry to the heap, ahead of entries with an equal sort key."""
        self._returns -= 1
        item = (self._rank(entry), self._returns, entry)
        self.live[entry.key] = item
        heappush(self._heap, item)

    @property
    def arrivals(self) -> int:
        """Number of `put` calls so far; `put_first` does not count."""
        return self._arrivals

    def get(self, key: str) -> PodRecord | None:
        """The entry of a key."""
        item = self.live.get(key)
        return None if item is None else item[2]

    def refresh(self, key: str) -> None:
        """Compute an entry's sort key again after its pod has changed."""
        rank, arrival, entry = self.live[key]
        now = self._rank(entry)
        if now != rank:
            self.live[key] = item = (now, arrival, entry)
            heappush(self._heap, item)
            if len(self._heap) > 2 * len(self.live) + _STALE_MIN:
                self._sweep()

    def take(self, key: str) -> PodRecord | None:
        """Remove the entry of a key and return it."""
        item = self.live.pop(key, None)
        if item is None:
            return None
        if len(self._heap) > 2 * len(self.live) + _STALE_MIN:
            self._sweep()
        return item[2]

    def take_items(self, entries: Iterable[PodRecord]) -> list[HeapItem]:
        """Remove entries, which are here; returns what `restore` needs for each."""
        items = [self.live.pop(entry.key) for entry in entries]
        if len(self._heap) > 2 * len(self.live) + _STALE_MIN:
            self._sweep()
        return items

    def restore(self, item: HeapItem) -> None:
        """Return an entry to the place that it had before `take_items`."""
        # A stale tuple of it may be left in the heap; the one that comes up second is dropped.
        self.live[item[2].key] = item
        heappush(self._heap, item)

    def peek(self) -> PodRecord | None:
        """The first entry; it stays in the heap."""
        heap, live = self._heap, self.live
        while heap:
            item = heap[0]
            if live.get(item[2].key) is item:
                return item[2]
            heappop(heap)
        return None

    def pop(self) -> PodRecord | None:
        """Remove the first entry and return it."""
        heap, live = self._heap, self.live
        while heap:
            item = heappop(heap)
            entry = item[2]
            if live.get(entry.key) is item:
                del live[entry.key]
                return entry
        return None

    def pop_items(self, n_max: int) -> list[HeapItem]:
        """Remove the first entries, at most so many; `restore_all` returns them."""
        heap, live = self._heap, self.live
        items: list[HeapItem] = []
        if len(heap) <= SORTED_TIMES_MAX * n_max:
            # In order it is a heap still, and entries that arrive in order are in order.
            heap.sort()
            first, heap[:n_max] = heap[:n_max], []
            for item in first:
                key = item[2].key
                if live.get(key) is item:
                    del live[key]
                    items.append(item)
        while heap and len(items) < n_max:
            item = heappop(heap)
            key = item[2].key
            if live.get(key) is item:
                del live[key]
                items.append(item)
        return items

    def restore_all(self, items: Iterable[HeapItem]) -> None:
        """Return the entries of `pop_items` to the places that they had."""
        for item in items:
            self.live[item[2].key] = item
            heappush(self._heap, item)

    def in_order(self) -> list[PodRecord]:
        """All entries in pop order."""
        return [item[2] for item in sorted(self.live.values())]

    def __iter__(self) -> Iterator[PodRecord]:
        """All entries, in no particular order."""
        return (item[2] for item in self.live.values())

    def _sweep(self) -> None:
        """Drop stale tuples."""
        self._heap = list(self.live.values())
        heapify(self._heap)
