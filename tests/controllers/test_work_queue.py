"""The work queue of controllers, and the index sets of Indexed Jobs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.controller_runtime.work_queue import WorkQueue
from stowplan.controllers.workloads import completion_indexes
from tests.soak import examples


def drained(queue: WorkQueue[str], now: float) -> list[str]:
    found = []
    while (key := queue.take(now)) is not None:
        found.append(key)
    return found


def test_a_key_is_due_once_at_the_earlier_time() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 10.0)
    queue.add("a", 5.0)
    queue.add("a", 20.0)
    assert queue.next_at() == 5.0
    assert drained(queue, 4.9) == []
    assert drained(queue, 30.0) == ["a"]
    assert queue.next_at() is None


def test_due_keys_come_in_the_order_they_were_added() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in "cab":
        queue.add(key)
    assert drained(queue, 0.0) == ["c", "a", "b"]


def test_patience_doubles_and_is_forgotten_after_success() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waits = []
    for _ in range(4):
        queue.retry("a", 100.0)
        waits.append(round((queue.next_at() or 0.0) - 100.0, 3))
        drained(queue, 1e9)
    assert waits == [0.005, 0.01, 0.02, 0.04]
    queue.forget("a")
    queue.retry("a", 100.0)
    assert round((queue.next_at() or 0.0) - 100.0, 3) == 0.005


@pytest.mark.parametrize(
    ("indexes", "text"),
    [([], ""), ([3], "3"), ([1, 2], "1,2"), ([0, 1, 2, 5, 7, 8], "0-2,5,7,8")],
)
def test_runs_of_three_are_written_with_a_dash(indexes: list[int], text: str) -> None:
    assert completion_indexes.format_indexes(indexes) == text


def test_what_cannot_be_read_or_lies_beyond_is_left_out() -> None:
    assert completion_indexes.parse_indexes("0,x,2-4,9-12,-1", 10) == {0, 2, 3, 4, 9}


def without_pairs(indexes: set[int]) -> str:
    """The wrong variant: a run of two is written with a dash, its members apart."""
    return completion_indexes.format_indexes(indexes).replace(",", "-", 1)


@given(st.sets(st.integers(0, 40)))
@settings(max_examples=examples(100), deadline=None)
def test_sets_survive_being_written(indexes: set[int]) -> None:
    assert (
        completion_indexes.parse_indexes(completion_indexes.format_indexes(indexes), 41) == indexes
    )


def test_the_wrong_way_of_writing_is_caught() -> None:
    assert completion_indexes.parse_indexes(without_pairs({1, 3}), 41) != {1, 3}


def test_the_first_free_indexes_are_used() -> None:
    assert completion_indexes.pending_indexes({0, 2, 3}, 3, 10) == [1, 4, 5]
    assert completion_indexes.pending_indexes({0, 1}, 3, 3) == [2]
