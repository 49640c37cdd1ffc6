"""Entries of a heap that are taken together are those taken one by one, and can go back."""

from __future__ import annotations

import pytest

from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.queue.heap import SORTED_TIMES_MAX, KeyedHeap
from stowplan.queue.pod_record import PodRecord


def heap_of(n: int) -> KeyedHeap:
    """Entries with few sort keys; every fifth was removed, every seventh came again."""
    heap = KeyedHeap(lambda entry: int(entry.key.rpartition("p")[2]) % 3)
    entries = [PodRecord.of(Pod(ObjectMeta(name=f"p{i}")), 0) for i in range(n)]
    heap.put_all(entries)
    for i in range(0, n, 5):
        heap.take(entries[i].key)
    for i in range(0, n, 7):
        heap.put(PodRecord.of(entries[i].pod, 1))
    return heap


@pytest.mark.parametrize("n_max", [1, 8, 100, 1000])
def test_entries_are_taken_in_order_and_go_back_to_their_places(n_max: int) -> None:
    for n in (0, 30, 2 * n_max, (SORTED_TIMES_MAX + 2) * n_max):
        heap, other = heap_of(n), heap_of(n)
        expected = [entry.key for entry in heap.in_order()]
        items = heap.pop_items(n_max)
        assert [item[2].key for item in items] == expected[:n_max]
        assert [entry.key for entry in heap.in_order()] == expected[n_max:]
        n_kept = len(items) // 3
        heap.restore_all(items[n_kept:])
        left = []
        while (entry := heap.pop()) is not None:
            left.append(entry.key)
        one_by_one = []
        while (entry := other.pop()) is not None:
            one_by_one.append(entry.key)
        assert [item[2].key for item in items[:n_kept]] + left == one_by_one


def test_an_entry_that_was_restored_is_taken_once() -> None:
    heap = heap_of(4)
    first = heap.peek()
    assert first is not None
    (item,) = heap.take_items([first])
    heap.restore(item)
    keys = [one[2].key for one in heap.pop_items(10)]
    assert len(keys) == len(set(keys)) == 4
