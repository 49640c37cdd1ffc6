"""The rules before hints: two numbers decide where a failed pod goes.

Source: descriptions of kube-scheduler v1.15 to v1.23.
"""

from __future__ import annotations

import pytest

from stowplan.queue import QueueOptions
from stowplan.testing.builders import pod
from tests.queue.fakes import NODE_ADD, NODE_DELETE, Harness, ns


def harness() -> Harness:
    return Harness(QueueOptions(hints=False))


def test_cycle_counts_pops_and_every_move_takes_it_over() -> None:
    h = harness()
    assert (h.queue.cycle, h.queue.move_request_cycle) == (0, -1)
    for name in "ab":
        h.add(name)
    h.pop()
    h.queue.move(NODE_DELETE, None, None, 0)
    assert (h.queue.cycle, h.queue.move_request_cycle) == (1, 1)
    h.pop()
    assert (h.queue.cycle, h.queue.move_request_cycle) == (2, 1)


def test_both_numbers_can_be_seen_with_hints_too() -> None:
    h = Harness()
    h.add("a")
    h.pop()
    h.queue.move(NODE_ADD, None, (), 0)
    assert (h.queue.cycle, h.queue.move_request_cycle) == (1, 1)


@pytest.mark.parametrize("plugins", [(), ("Picky",), ("Stranger",)])
def test_a_pod_that_fails_goes_to_backoff_if_anything_moved_in_its_cycle(
    plugins: tuple[str, ...],
) -> None:
    h = harness()
    for name in "abc":
        h.add(name)
    first = h.pop()
    second = h.pop()
    h.queue.move(NODE_ADD, None, (), 0)
    third = h.pop()
    for entry in (first, second, third):
        h.fail(entry, 0, *plugins)
    assert h.pods_by_queue() == {"backoff": ["a", "b"], "unschedulable": ["c"]}


def test_the_cycle_may_be_given() -> None:
    h = harness()
    for name in "ab":
        h.add(name)
    first, second = h.pop(), h.pop()
    h.queue.move(NODE_ADD, None, (), 0)
    h.queue.add_unschedulable_if_not_present(first, 0, refused_by={"Picky"}, cycle=h.queue.cycle)
    h.queue.add_unschedulable_if_not_present(
        second, 0, refused_by={"Picky"}, cycle=h.queue.cycle + 1
    )
    assert h.pods_by_queue() == {"backoff": ["a"], "unschedulable": ["b"]}


def test_a_move_takes_pods_to_backoff_while_they_wait_and_to_active_after() -> None:
    h = harness()
    h.park("waited", 0, "Easy")
    h.park("waiting", 0.5, "Easy")
    h.queue.move(NODE_ADD, None, (), ns(1))
    assert h.pods_by_queue() == {"active": ["waited"], "backoff": ["waiting"]}


def test_hints_are_not_asked_but_registrations_count() -> None:
    h = harness()
    for name, plugins in (("picky", ("Picky",)), ("stranger", ("Stranger",)), ("unnamed", ())):
        h.park(name, 0, *plugins)
    h.queue.move(NODE_ADD, None, (), ns(9))
    assert h.pods_by_queue() == {"active": ["picky", "unnamed"], "unschedulable": ["stranger"]}


def test_errors_and_refusals_are_not_distinguished() -> None:
    h = harness()
    entry = h.park("a", 0)
    assert (entry.refusals, entry.errors) == (1, 0)


def test_nothing_is_aligned_to_seconds() -> None:
    h = harness()
    h.add("a")
    entry = h.pop()
    h.queue.move(NODE_ADD, None, (), 0)
    h.fail(entry, 0.3, "Easy")
    assert h.queue.pop() is None, "nothing is popped early"
    h.queue.flush_backoff(ns(1.3) - 1)
    assert h.pods_by_queue() == {"backoff": ["a"]}
    h.queue.flush_backoff(ns(1.3))
    assert h.pods_by_queue() == {"active": ["a"]}


def test_leftovers_are_flushed_after_60_seconds_checked_every_30() -> None:
    assert QueueOptions(hints=False).flush_unschedulable_s == 30
    h = harness()
    h.park("a", 0, "Stranger")
    h.queue.flush_unschedulable(ns(60))
    assert h.pods_by_queue() == {"unschedulable": ["a"]}
    h.queue.flush_unschedulable(ns(60) + 1)
    assert h.pods_by_queue() == {"active": ["a"]}


def test_an_update_moves_an_unschedulable_pod_unless_only_its_status_changed() -> None:
    h = harness()
    entry = h.park("a", 0, "Stranger")
    old = entry.pod
    h.queue.update(old, pod("a", uid="a-uid", nominated="n1", priority=0), ns(9))
    assert h.pods_by_queue() == {"unschedulable": ["a"]}
    h.queue.update(entry.pod, pod("a", uid="a-uid", labels={"x": "y"}, priority=0), ns(9))
    assert h.pods_by_queue() == {"active": ["a"]}


def test_an_update_in_its_backoff_puts_an_unschedulable_pod_into_backoff() -> None:
    h = harness()
    entry = h.park("a", 0, "Stranger")
    h.queue.update(entry.pod, pod("a", uid="a-uid", labels={"x": "y"}, priority=0), ns(0.1))
    assert h.pods_by_queue() == {"backoff": ["a"]}


def test_no_pod_is_in_flight() -> None:
    h = harness()
    h.add("a")
    entry = h.pop()
    h.queue.move(NODE_ADD, None, (), 0)
    assert h.pods_by_queue() == {}
    h.queue.done(entry.uid)
    assert h.fail(entry, 0) == ""
