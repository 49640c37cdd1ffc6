"""Events of watched objects, by kind: pods and nodes have their own; and their order."""

from __future__ import annotations

from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

WATCH_EVENTS = frozenset(
    (
        happened.PodAdded,
        happened.PodUpdated,
        happened.PodDeleted,
        happened.NodeAdded,
        happened.NodeUpdated,
        happened.NodeDeleted,
        happened.ObjectAdded,
        happened.ObjectUpdated,
        happened.ObjectDeleted,
    )
)
"""Types of the events that watches show. All others result from own decisions."""


def watch_events_first(events: list[Event]) -> list[Event]:
    """The events of watches, then all others, each in their order."""
    if len(events) < 2:
        return events
    first = [event for event in events if type(event) in WATCH_EVENTS]
    if 0 < len(first) < len(events):
        first += [event for event in events if type(event) not in WATCH_EVENTS]
        return first
    return events


def added_event(value: Object) -> Event:
    """The event of an added object."""
    if isinstance(value, Pod):
        return happened.PodAdded(value)
    return happened.NodeAdded(value) if isinstance(value, Node) else happened.ObjectAdded(value)


def updated_event(value: Object) -> Event:
    """The event of a changed object."""
    if isinstance(value, Pod):
        return happened.PodUpdated(value)
    return happened.NodeUpdated(value) if isinstance(value, Node) else happened.ObjectUpdated(value)


def deleted_event(value: Object) -> Event:
    """The event of a deleted object."""
    if isinstance(value, Pod):
        return happened.PodDeleted(value)
    return happened.NodeDeleted(value) if isinstance(value, Node) else happened.ObjectDeleted(value)
