"""The heap by key: order, change, removal, and that what is removed does not pile up."""

from __future__ import annotations

import random

import pytest

from stowplan.framework.plugin import QueuedPod
from stowplan.queue.heap import KeyedHeap, SortKey
from stowplan.queue.pod_record import PodRecord
from stowplan.queue.queue_sort import sort_key_by_less
from stowplan.testing.builders import pod


def entry(name: str, priority: int = 0, at: int = 0) -> PodRecord:
    return PodRecord.of(pod(name, priority=priority), at)


def by_key(of: PodRecord) -> tuple[int, float]:
    return -of.pod.priority, of.added_at


def less(first: QueuedPod, second: QueuedPod) -> bool:
    if first.pod.priority != second.pod.priority:
        return first.pod.priority > second.pod.priority
    return first.added_at < second.added_at


@pytest.fixture(params=[by_key, sort_key_by_less(less)], ids=["key", "less"])
def heap(request: pytest.FixtureRequest) -> KeyedHeap:
    rank: SortKey = request.param
    return KeyedHeap(rank)


def drained(heap: KeyedHeap) -> list[str]:
    names = [one.pod.name for one in heap.in_order()]
    popped = []
    while (first := heap.pop()) is not None:
        popped.append(first.pod.name)
    assert popped == names, "in_order() must be the order of pops"
    return popped


def test_priority_then_time_then_arrival(heap: KeyedHeap) -> None:
    for name, priority, at in (("a", 0, 1), ("b", 5, 2), ("c", 5, 1), ("d", 0, 1), ("e", 0, 0)):
        heap.put(entry(name, priority, at))
    assert len(heap) == 5
    assert drained(heap) == ["c", "b", "e", "a", "d"]


def test_an_entry_of_the_same_key_is_replaced(heap: KeyedHeap) -> None:
    heap.put(entry("a", 5))
    heap.put(entry("b", 3))
    heap.put(entry("a", 1))
    assert drained(heap) == ["b", "a"]


def test_a_changed_pod_is_sorted_again(heap: KeyedHeap) -> None:
    first = entry("a", 5)
    heap.put(first)
    heap.put(entry("b", 3))
    first.pod = pod("a", priority=1)
    heap.refresh(first.key)
    assert drained(heap) == ["b", "a"]


def test_a_change_that_does_not_matter_keeps_the_place(heap: KeyedHeap) -> None:
    first = entry("a")
    heap.put(first)
    heap.put(entry("b"))
    first.pod = pod("a", labels={"new": "yes"})
    heap.refresh(first.key)
    assert drained(heap) == ["a", "b"]


def test_what_is_taken_is_gone(heap: KeyedHeap) -> None:
    for name in "abc":
        heap.put(entry(name))
    taken = heap.take("default/a")
    assert taken is not None
    assert taken.pod.name == "a"
    assert heap.take("default/a") is None
    assert heap.get("default/a") is None
    assert "default/a" not in heap
    assert heap.peek() is heap.get("default/b")
    assert drained(heap) == ["b", "c"]
    assert heap.pop() is None
    assert heap.peek() is None


def test_removed_entries_do_not_pile_up() -> None:
    heap = KeyedHeap(by_key)
    for number in range(5000):
        heap.put(entry(f"p{number}", at=number))
        heap.take(f"default/p{number}")
    assert len(heap._heap) < 100


def test_a_long_life_against_sorting() -> None:
    rng = random.Random(7)
    heap, live = KeyedHeap(by_key), dict[str, PodRecord]()
    for number in range(3000):
        one = entry(f"p{rng.randrange(200)}", rng.randrange(5), number)
        if rng.random() < 0.6:
            heap.put(one)
            live[one.key] = one
        elif rng.random() < 0.5:
            assert heap.take(one.key) is live.pop(one.key, None)
        elif live:
            first = min(live.values(), key=by_key)
            assert heap.pop() is live.pop(first.key)
    assert len(heap) == len(live)
