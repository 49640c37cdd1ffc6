"""Events and effects: every message has a handler."""

from __future__ import annotations

import typing

from stowplan.messages import effects, events
from stowplan.messages.effects import Effect, Numbered, OnObject
from stowplan.messages.events import Event, FailedRequest, Message, Outcome
from tests.scenarios.script import made

BASES = (Message, Numbered, OnObject, Outcome, FailedRequest)


def defined(module: object, base: type) -> set[type]:
    """Message types that a module defines."""
    found = (value for value in vars(module).values() if isinstance(value, type))
    return {one for one in found if issubclass(one, base) and one not in BASES}


def test_the_lists_are_complete() -> None:
    assert set(typing.get_args(Effect)) == defined(effects, Numbered)
    assert set(typing.get_args(Event)) == defined(events, Message)


def test_every_effect_has_a_number_and_a_term() -> None:
    for kind in typing.get_args(Effect):
        assert kind.__struct_fields__[:2] == ("effect", "term")


def test_the_scheduler_handles_every_event() -> None:
    assert made()._event_table.keys() == set(typing.get_args(Event))


def test_every_outcome_names_its_effect() -> None:
    """The docstring of an effect names the events that end it."""
    outcomes = {
        kind.__name__: kind
        for kind in typing.get_args(Event)
        if kind.__struct_fields__[:1] == ("effect",)
    }
    docs = "".join(kind.__doc__ or "" for kind in typing.get_args(Effect))
    assert {name for name in outcomes if name not in docs} == set()
