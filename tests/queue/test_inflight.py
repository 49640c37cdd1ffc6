"""What happened while pods were in flight: kept as long as anybody needs it."""

from __future__ import annotations

from stowplan.queue.in_flight_pods import InFlightEvent, InFlightPods
from tests.queue.fakes import NODE_ADD


def texts(of: InFlightPods) -> list[str]:
    return [str(one.new) if isinstance(one, InFlightEvent) else one for one in of.log()]


def news(of: InFlightPods, uid: str) -> list[object]:
    return [one.new for one in of.since(uid)]


def test_each_pod_sees_what_came_after_it() -> None:
    flight = InFlightPods()
    flight.note(NODE_ADD, None, "before everything")
    assert flight.start("a")
    flight.note(NODE_ADD, None, 1)
    assert flight.start("b")
    flight.note(NODE_ADD, None, 2)
    assert news(flight, "a") == [1, 2]
    assert news(flight, "b") == [2]
    assert texts(flight) == ["a", "1", "b", "2"]
    assert len(flight) == 2


def test_unneeded_events_are_forgotten() -> None:
    flight = InFlightPods()
    for uid in "abc":
        flight.start(uid)
        flight.note(NODE_ADD, None, uid.upper())
    assert flight.done("b")
    assert texts(flight) == ["a", "A", "B", "c", "C"]
    assert flight.done("a")
    assert texts(flight) == ["c", "C"]
    assert flight.done("c")
    assert texts(flight) == []
    assert not flight.done("c")


def test_a_pod_is_in_flight_once() -> None:
    flight = InFlightPods()
    assert flight.start("a")
    assert not flight.start("a")
    assert flight.pods() == ["a"]


def test_a_pod_may_come_back_while_others_are_in_flight() -> None:
    flight = InFlightPods()
    flight.start("long")
    for number in range(3):
        flight.start("a")
        flight.note(NODE_ADD, None, number)
        assert news(flight, "a") == [number]
        flight.done("a")
    assert news(flight, "long") == [0, 1, 2]
    assert texts(flight) == ["long", "0", "1", "2"]


def test_memory_follows_what_is_needed() -> None:
    flight = InFlightPods()
    flight.start("p0")
    for number in range(20_000):
        flight.note(NODE_ADD, None, number)
        flight.start(f"p{number + 1}")
        flight.done(f"p{number}")
    assert len(flight._events) < 1000
    assert len(flight._order) < 1000
    assert texts(flight) == ["p20000"]
