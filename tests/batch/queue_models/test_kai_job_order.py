"""The heap in which jobs and queues of KAI-Scheduler wait."""

from __future__ import annotations

import random

from stowplan.batch.queue_models.kai.binary_heap import BinaryHeap


def test_entries_come_out_in_order() -> None:
    numbers = random.Random(7).sample(range(1000), 100)
    heap = BinaryHeap[int](lambda left, right: left < right)
    for number in numbers:
        heap.push(number)
    assert [heap.pop() for _ in numbers] == sorted(numbers)


def test_an_order_that_changes_shows_when_the_first_entry_is_fixed() -> None:
    used = {"a": 0, "b": 1, "c": 2}
    heap = BinaryHeap[str](lambda left, right: used[left] < used[right])
    for name in used:
        heap.push(name)
    used["a"] = 3
    assert heap.items[0] == "a"
    heap.fix_first()
    assert heap.items[0] == "b"


def test_equal_entries_come_out_as_from_the_heap_of_go() -> None:
    heap = BinaryHeap[str](lambda left, right: left[0] < right[0])
    for name in ("x1", "x2", "x3", "x4"):
        heap.push(name)
    assert [heap.pop() for _ in range(4)] == ["x1", "x4", "x3", "x2"]
