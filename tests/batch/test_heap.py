"""The heap takes the same steps as Go's container/heap, also when keys change."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.batch.sorted_tasks import SortedTasks
from stowplan.framework.deciders.heap import Heap, HeapByKey
from tests.property.wrong import assert_caught
from tests.soak import examples

Numbers = st.lists(st.integers(0, 50), max_size=30)


def popped(heap: Heap[int] | SortedTasks[int]) -> list[int]:
    return [heap.pop() for _ in range(len(heap))]


def test_pops_in_order() -> None:
    assert popped(Heap(lambda a, b: a < b, [5, 1, 4, 1, 3])) == [1, 1, 3, 4, 5]


def test_a_changed_key_takes_effect_at_the_next_comparison() -> None:
    # By hand after container/heap: pushed a, b, c, d with shares 0, 1, 2, 3, then a's grows.
    share = {"a": 0, "b": 1, "c": 2, "d": 3}
    heap = Heap(lambda x, y: share[x] < share[y], "abcd")
    share["a"] = 9
    assert heap.pop() == "a"
    share["c"] = 0
    # d moved to the top and then below b, which was the smaller of b and c.
    assert [heap.pop(), heap.pop(), heap.pop()] == ["b", "c", "d"]


def check_same_as_sorted(numbers: list[int], sort: Callable[[list[int]], list[int]]) -> None:
    pairs = list(enumerate(numbers))
    heap = Heap(lambda a, b: (a[1], a[0]) < (b[1], b[0]), pairs)
    assert [heap.pop()[1] for _ in pairs] == sort(numbers)


@settings(max_examples=examples(100))
@given(Numbers)
def test_constant_keys_are_popped_in_sorted_order(numbers: list[int]) -> None:
    check_same_as_sorted(numbers, sorted)
    assert popped(SortedTasks(lambda n: n, numbers)) == sorted(numbers)


class Job:
    """What heaps of jobs order: a share that grows when the job is taken out, then a number."""

    def __init__(self, number: int, share: int) -> None:
        self.number, self.share = number, share

    @property
    def key(self) -> tuple[int, int]:
        """Unique."""
        return self.share, self.number


def check_keys_as_comparisons(shares: list[int], heap_by_key: type[HeapByKey[Job]]) -> None:
    jobs = [Job(number, abs(share)) for number, share in enumerate(shares)]
    compared = Heap(lambda a, b: a.key < b.key, jobs)
    keyed = heap_by_key(lambda job: job.key, jobs)
    for share in shares:
        first = compared.pop()
        assert keyed.pop() is first
        if share % 2:
            first.share += 1 + abs(share)
            compared.push(first)
            keyed.push(first)
    assert sorted(job.number for job in keyed) == sorted(job.number for job in compared)
    copy = keyed.copy()
    order = [copy.pop() for _ in range(len(copy))]
    assert order == [compared.pop() for _ in range(len(compared))]
    assert len(keyed) == len(order)


@settings(max_examples=examples(100))
@given(Numbers)
def test_a_heap_by_keys_pops_as_one_by_comparisons(shares: list[int]) -> None:
    check_keys_as_comparisons(shares, HeapByKey)


def test_control_a_heap_with_the_keys_of_before_is_noticed() -> None:
    class FirstKeys(HeapByKey[Job]):
        """Keeps the key with which an item came first."""

        def __init__(self, key: Callable[[Job], tuple[int, int]], items: list[Job]) -> None:
            known = {job: key(job) for job in items}
            super().__init__(known.__getitem__, items)

    assert_caught(lambda shares: check_keys_as_comparisons(shares, FirstKeys), Numbers)


def test_control_a_plain_heap_is_noticed() -> None:
    def not_sorted(numbers: list[int]) -> list[int]:
        heap = list(numbers)
        heapq.heapify(heap)
        return heap

    def check(numbers: list[int]) -> None:
        check_same_as_sorted(numbers, not_sorted)

    assert_caught(check, Numbers)
