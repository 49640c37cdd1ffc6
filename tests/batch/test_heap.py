"""The heap takes the same steps as Go's container/heap, also when keys change."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.batch.sorted_tasks import SortedTasks
from stowplan.framework.deciders.heap import Heap
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


def test_control_a_plain_heap_is_noticed() -> None:
    def not_sorted(numbers: list[int]) -> list[int]:
        heap = list(numbers)
        heapq.heapify(heap)
        return heap

    def check(numbers: list[int]) -> None:
        check_same_as_sorted(numbers, not_sorted)

    assert_caught(check, Numbers)
