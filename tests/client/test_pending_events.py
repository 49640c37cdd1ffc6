"""Events wait for bindings, but not for ever, and those of one object are in order."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from stowplan.client.api_calls import RequestTime
from stowplan.client.pending_events import (
    EVENT_AGE_MAX,
    EVENTS_AT_ONCE_MAX,
    EVENTS_HELD_MAX,
    LOADED_WRITES,
    PENDING_EVENTS_MAX,
    PendingEvent,
    PendingEvents,
)
from stowplan.messages.effects import RecordEvent

BUSY = LOADED_WRITES - 1
"""Other writes, but not many."""


def event(number: int, uid: str = "", at: int = 0) -> PendingEvent:
    """An event about an object of its own, unless another is named."""
    name = uid or f"pod{number}"
    words = ("stowplan", "Normal", "Scheduled", "Binding", "note")
    effect = RecordEvent(number, 1, name, "ns", name, *words)
    return PendingEvent(effect, RequestTime(at, at, "", ""), "")


def filled(n_events: int, at: int = 0) -> PendingEvents:
    events = PendingEvents()
    for number in range(n_events):
        assert events.add(event(number, at=at))
    return events


def started(events: PendingEvents, now: int, n_writes: int) -> list[PendingEvent]:
    """All events that may be started at once."""
    found: list[PendingEvent] = []
    while (one := events.next(now, n_writes)) is not None:
        found.append(one)
    return found


def test_one_event_is_posted_at_a_time_beside_bindings_and_many_without() -> None:
    events = filled(100)
    (first,) = started(events, 0, BUSY)
    assert started(events, 0, BUSY) == []
    more = started(events, 0, 0)
    assert len(more) == EVENTS_AT_ONCE_MAX - 1
    assert started(events, 0, 0) == []
    for one in (first, *more):
        events.done(one)
    assert len(started(events, 0, BUSY)) == 1
    assert (len(events), events.n_under_way) == (100 - EVENTS_AT_ONCE_MAX - 1, 1)


def test_no_event_is_begun_beside_many_bindings_unless_it_has_waited_long() -> None:
    events = filled(100, at=5)
    assert started(events, 5 + EVENT_AGE_MAX - 1, LOADED_WRITES) == []
    assert len(started(events, 5 + EVENT_AGE_MAX, LOADED_WRITES)) == EVENTS_AT_ONCE_MAX
    many = filled(EVENTS_HELD_MAX + 1)
    assert len(started(many, 0, LOADED_WRITES)) == 1


def test_events_that_have_waited_long_are_posted_beside_bindings() -> None:
    events = filled(100, at=5)
    assert len(started(events, 5 + EVENT_AGE_MAX - 1, BUSY)) == 1
    assert len(started(events, 5 + EVENT_AGE_MAX, BUSY)) == EVENTS_AT_ONCE_MAX - 1


def test_only_so_many_are_held_back_as_a_shutdown_has_time_for() -> None:
    assert len(started(filled(EVENTS_HELD_MAX), 0, BUSY)) == 1
    assert len(started(filled(EVENTS_HELD_MAX + 100), 0, BUSY)) == EVENTS_AT_ONCE_MAX


def test_what_does_not_fit_is_dropped_and_counted() -> None:
    events = filled(PENDING_EVENTS_MAX)
    assert not events.add(event(PENDING_EVENTS_MAX))
    assert (len(events), events.n_dropped) == (PENDING_EVENTS_MAX, 1)
    assert events.next(0, 0) is not None
    assert events.add(event(PENDING_EVENTS_MAX))


def test_an_object_with_many_events_keeps_its_place() -> None:
    events = PendingEvents()
    for number, uid in enumerate("aaabac"):
        events.add(event(number, uid, at=number))
    order = []
    while (one := events.next(0, BUSY)) is not None:
        order.append(one.effect.effect)
        events.done(one)
    assert order == [0, 1, 2, 3, 4, 5]
    assert not events


class Unordered(PendingEvents):
    """Wrong: starts an event while an earlier one of the same object is under way."""

    def next(self, now: int, n_writes: int) -> PendingEvent | None:
        if not self.n_allowed(now, n_writes):
            return None
        self.n_under_way += 1
        return self._waiting.popleft()

    def done(self, event: PendingEvent) -> None:
        self.n_under_way -= 1


class Behind(PendingEvents):
    """Wrong: an event that waited for another of its object is put behind those that came later."""

    def done(self, event: PendingEvent) -> None:
        self.n_under_way -= 1
        blocked = self._blocked.pop(event.effect.uid)
        self._n_blocked -= len(blocked)
        self._waiting.extend(blocked)


def faults(kind: type[PendingEvents], seed: int) -> int:
    """How often an event of a random run was ended before an earlier one of its object, or started
    later than one that came after it though its object had none under way."""
    rng = np.random.default_rng(seed)
    events, under_way, n_faults, n_added, n_ended = kind(), [], 0, 0, 0
    ended: dict[str, list[int]] = defaultdict(list)
    waiting: dict[int, str] = {}
    while n_ended < 300:
        if n_added < 300 and rng.random() < 0.6:
            uid = f"pod{rng.integers(6)}"
            events.add(event(n_added, uid, at=n_added))
            waiting[n_added] = uid
            n_added += 1
        n_writes = int(rng.choice([0, BUSY, LOADED_WRITES], p=[0.7, 0.2, 0.1]))
        while (one := events.next(n_added, n_writes)) is not None:
            number = one.effect.effect
            busy = {other.effect.uid for other in under_way}
            n_faults += any(n < number and uid not in busy for n, uid in waiting.items())
            del waiting[number]
            under_way.append(one)
        if under_way and rng.random() < 0.7:
            one = under_way.pop(int(rng.integers(len(under_way))))
            ended[one.effect.uid].append(one.effect.effect)
            events.done(one)
            n_ended += 1
    assert len(events) == events.n_under_way == 0
    return n_faults + sum(numbers != sorted(numbers) for numbers in ended.values())


def test_events_of_an_object_are_posted_in_order_and_older_ones_first() -> None:
    assert sum(faults(PendingEvents, seed) for seed in range(100)) == 0


def test_wrong_orders_are_caught() -> None:
    for kind in (Unordered, Behind):
        assert sum(faults(kind, seed) for seed in range(5)) > 0


def test_postponed_events_are_tried_again_in_time_and_hold_others_of_their_object() -> None:
    events = PendingEvents()
    for number, uid in enumerate(("a", "a", "b")):
        events.add(event(number, uid))
    first, other = started(events, 0, 0)
    events.postpone(first, 10)
    events.done(other)
    assert started(events, 9, 0) == []
    assert (len(events), events.n_under_way, events.are_all_postponed) == (2, 0, True)
    assert started(events, 10, BUSY) == [first]
    events.done(first)
    (last,) = started(events, 10, 0)
    assert last.effect.effect == 1
    events.done(last)
    assert (len(events), events.n_under_way) == (0, 0)


def test_few_events_are_tried_while_a_server_is_away_and_all_afterwards() -> None:
    events = filled(3 * EVENTS_AT_ONCE_MAX)
    tried = set()
    for now in range(100):
        for one in started(events, now, 0):
            tried.add(one.effect.effect)
            events.postpone(one, now + 10)
    assert len(tried) == EVENTS_AT_ONCE_MAX
    assert len(events) == 3 * EVENTS_AT_ONCE_MAX
    assert not events.are_all_postponed
    while found := started(events, 200, 0):
        tried |= {one.effect.effect for one in found}
        for one in found:
            events.done(one)
    assert len(tried) == 3 * EVENTS_AT_ONCE_MAX
    assert (len(events), events.n_under_way, events.are_all_postponed) == (0, 0, True)
