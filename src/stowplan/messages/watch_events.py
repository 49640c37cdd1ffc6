"""Events of watched objects, by kind: pods and nodes have their own."""

from __future__ import annotations

from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod


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
