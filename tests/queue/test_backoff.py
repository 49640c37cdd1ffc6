"""How long pods wait after failures, and in what order they come out."""

from __future__ import annotations

import pytest

from stowplan.objects.encoding.duration import SECOND
from stowplan.plugins.priority_sort import PrioritySort
from stowplan.queue import PodRecord, QueueOptions
from stowplan.queue.backoff_queue import BackoffQueue
from stowplan.testing.builders import pod
from tests.queue.fakes import ns

PLAIN = QueueOptions(pop_from_backoff=False)


def backoff(options: QueueOptions | None = None) -> BackoffQueue:
    return BackoffQueue(options or QueueOptions(), PrioritySort().sort_key)


def entry(
    name: str = "a", at_s: float = 0, *, refusals: int = 0, errors: int = 0, priority: int = 0
) -> PodRecord:
    made = PodRecord.of(pod(name, priority=priority), ns(at_s))
    made.refusals, made.errors = refusals, errors
    made.refused_by = frozenset({"Fit"}) if refusals and not errors else frozenset()
    return made


def expiry_s(of: BackoffQueue, one: PodRecord) -> float | None:
    expiry = of.expiry(one)
    return None if expiry is None else expiry / SECOND


@pytest.mark.parametrize(
    ("refusals", "wanted_s"),
    [(0, None), (1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10), (1000, 10)],
)
def test_the_wait_doubles_up_to_the_maximum(refusals: int, wanted_s: float | None) -> None:
    assert expiry_s(backoff(), entry(refusals=refusals)) == wanted_s


@pytest.mark.parametrize(
    ("options", "refusals", "wanted_s"),
    [
        (QueueOptions(initial_backoff_s=3, max_backoff_s=20), 3, 12),
        (QueueOptions(initial_backoff_s=3, max_backoff_s=20), 4, 20),
        (QueueOptions(initial_backoff_s=7, max_backoff_s=5), 1, 5),
        (QueueOptions(max_backoff_s=0), 3, None),
    ],
)
def test_durations_are_options(
    options: QueueOptions, refusals: int, wanted_s: float | None
) -> None:
    assert expiry_s(backoff(options), entry(refusals=refusals)) == wanted_s


def test_errors_in_a_row_count_before_refusals() -> None:
    assert expiry_s(backoff(), entry(refusals=4, errors=1)) == 1


@pytest.mark.parametrize(
    ("options", "at_s", "over_s", "first_over_s"),
    [
        # Cut down to a whole second, and over when a later one has begun.
        (QueueOptions(), 1.234, 2, 3),
        (QueueOptions(), 1, 2, 3),
        # As it is, and over when it has passed.
        (PLAIN, 1.25, 2.25, 2.25 + 1 / SECOND),
        # Before hints: over at the moment itself.
        (QueueOptions(hints=False), 1.25, 2.25, 2.25),
    ],
    ids=["windows", "windows at a whole second", "plain", "without hints"],
)
def test_when_a_wait_is_over(
    options: QueueOptions, at_s: float, over_s: float, first_over_s: float
) -> None:
    waits, one = backoff(options), entry(at_s=at_s, refusals=1)
    assert expiry_s(waits, one) == over_s
    waits.put(one)
    first = waits.next_over()
    assert first == round(first_over_s * SECOND)
    assert waits.is_waiting(one, first - 1)
    assert not waits.is_waiting(one, first)
    assert waits.pop_over(first - 1) == []
    assert waits.pop_over(first) == [one]
    assert waits.next_over() is None


def test_in_one_window_the_order_of_the_active_queue_decides() -> None:
    waits = backoff()
    for name, at_s, priority in (("late", 0.9, 0), ("low", 0.1, 0), ("high", 0.5, 7)):
        waits.put(entry(name, at_s, refusals=1, priority=priority))
    waits.put(entry("next window", 1.1, refusals=1, priority=9))
    names = [one.pod.name for one in waits.refused.in_order()]
    assert names == ["high", "low", "late", "next window"]


def test_without_windows_only_time_decides() -> None:
    waits = backoff(PLAIN)
    for name, at_s, priority in (("late", 0.9, 9), ("low", 0.1, 0), ("high", 0.5, 7)):
        waits.put(entry(name, at_s, refusals=1, priority=priority))
    assert [one.pod.name for one in waits.refused.in_order()] == ["low", "high", "late"]


def test_only_refused_pods_come_early_and_only_with_windows() -> None:
    waits, plain = backoff(), backoff(PLAIN)
    for one in (waits, plain):
        one.put(entry("refused", refusals=1))
        one.put(entry("failed", errors=1))
    early = waits.pop_before_expiry()
    assert early is not None
    assert early.pod.name == "refused"
    assert waits.pop_before_expiry() is None
    assert plain.pop_before_expiry() is None


def test_refused_pods_come_out_before_failed_ones() -> None:
    waits = backoff()
    waits.put(entry("failed", errors=1))
    waits.put(entry("refused", refusals=1))
    assert [one.pod.name for one in waits.pop_over(ns(9))] == ["refused", "failed"]
    assert len(waits) == 0


def test_a_pod_is_found_in_either_heap() -> None:
    waits = backoff()
    refused, failed = entry("refused", refusals=1), entry("failed", errors=1)
    waits.put(refused)
    waits.put(failed)
    assert list(waits) == [refused, failed]
    for one in (refused, failed):
        assert one.key in waits
        assert waits.get(one.key) is one
        assert waits.take(one.key) is one
        assert one.key not in waits
