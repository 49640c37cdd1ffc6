"""Pods that were popped together and not tried: the queue is as if they had not been popped."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stowplan.queue import QueueOptions
from tests.queue.fakes import NODE_ADD, Harness, ns

NAMES = ("a", "b", "c", "d")


def queued(*, hints: bool = True) -> Harness:
    h = Harness(QueueOptions(hints=hints))
    for name in NAMES:
        h.add(name, 0)
    return h


@pytest.mark.parametrize("hints", [True, False], ids=["hints", "without"])
def test_pods_that_come_back_come_next_and_in_their_order(hints: bool) -> None:
    h = queued(hints=hints)
    popped = [h.pop() for _ in range(3)]
    h.queue.undo_pops(popped[1:])
    assert h.queue.cycle == 1
    again = [h.pop() for _ in range(3)]
    assert [entry.pod.name for entry in again] == ["b", "c", "d"]
    assert [entry.attempts for entry in again] == [1, 1, 1]
    h.queue.undo_pops(again[1:])
    assert [h.pop().pod.name for _ in range(2)] == ["c", "d"]


def test_what_happened_before_a_pod_comes_up_again_did_not_happen_meanwhile() -> None:
    h = queued()
    first, second = h.pop(), h.pop()
    h.queue.move(NODE_ADD, None, (second.pod.name,), ns(1))
    assert h.queue.in_flight.since(second.uid)
    h.queue.undo_pops([second])
    assert h.queue.in_flight.since(first.uid)
    assert h.pop() is second
    assert not h.queue.in_flight.since(second.uid)


def test_without_hints_a_change_is_of_the_pod_that_was_tried() -> None:
    h = queued(hints=False)
    first, second = h.pop(), h.pop()
    h.queue.move(NODE_ADD, None, None, ns(1))
    h.queue.undo_pops([second])
    assert h.pop() is second
    assert h.queue.move_request_cycle == first.cycle < second.cycle


@pytest.mark.parametrize(
    ("what", "revision"),
    [
        (lambda h: h.add("e", 1), True),
        (lambda h: h.queue.move(NODE_ADD, None, ("x",), ns(1)), True),
        (lambda h: None, False),
    ],
    ids=["a pod comes", "a node comes", "nothing"],
)
def test_the_queue_reports_changes(what: Callable[[Harness], object], revision: bool) -> None:
    h = queued()
    h.pop()
    before = h.queue.revision
    what(h)
    assert (h.queue.revision != before) is revision
