"""Watch: what one scheduler is shown of the changes of a cluster, as its informers tell it.

Nodes and pods come in streams of their own, so one may lag behind the other; each keeps its order.
A stream that breaks goes on from the version that it has seen; where the API has forgotten that
version, or the scheduler has just started, all is listed anew and what has gone meanwhile is told
as gone.
"""

from __future__ import annotations

from collections.abc import Callable

from stowplan.framework.object_store import key_of
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.simulation.cluster.simulated_cluster import ResourceVersionExpired, SimulatedCluster

KnownObjects = dict[tuple[type, str], Object]

_DELETED = (happened.PodDeleted, happened.NodeDeleted, happened.ObjectDeleted)


class WatchStream:
    """The changes of some kinds. version: up to which they have been shown; -1 before the list.
    n_lists: how often all was listed."""

    def __init__(self, cluster: SimulatedCluster, concerns: Callable[[Object], bool]) -> None:
        self.version = -1
        self.n_lists = 0
        self._cluster = cluster
        self._concerns = concerns
        self._known_objects: KnownObjects = {}

    def take(self, most: int | None = None) -> list[Event]:
        """What has not been shown yet, at most so many events of it; a list comes whole."""
        if self.version < 0:
            return self.relist()
        try:
            changes = self._cluster.since(self.version)
        except ResourceVersionExpired:
            return self.relist()
        found: list[Event] = []
        for event in changes:
            if most is not None and len(found) >= most:
                break
            self.version += 1
            if self._concerns(object_of(event)):
                self._note(event)
                found.append(event)
        return found

    def expire(self) -> None:
        """Forget up to which version changes have been shown: all is listed anew."""
        self.version = -1

    def relist(self) -> list[Event]:
        """All there is, as a list that starts over shows it."""
        cluster = self._cluster
        self.n_lists += 1
        there: KnownObjects = {}
        for group in (cluster.nodes.values(), cluster.pods.values(), cluster.objects.values()):
            for value in group:
                if self._concerns(value):
                    there[kind_and_key(value)] = value
        gone = [value for key, value in self._known_objects.items() if key not in there]
        found = [deleted_event(value) for value in gone]
        for key, value in there.items():
            found.append(updated_event(value) if key in self._known_objects else added_event(value))
        self._known_objects = there
        self.version = cluster.version
        return found

    def repeat(self, place: int, count: int) -> list[Event]:
        """Some of what has been shown already, once more, as resyncs do."""
        values = list(self._known_objects.values())
        if not values:
            return []
        first = place % len(values)
        return [updated_event(value) for value in values[first : first + count]]

    def _note(self, event: Event) -> None:
        value = object_of(event)
        if isinstance(event, _DELETED):
            self._known_objects.pop(kind_and_key(value), None)
        else:
            self._known_objects[kind_and_key(value)] = value


def any_kind(value: Object) -> bool:
    """For a stream that shows all kinds."""
    return True


def is_pod(value: Object) -> bool:
    """For a stream of pods."""
    return isinstance(value, Pod)


def is_not_pod(value: Object) -> bool:
    """For a stream of all the rest."""
    return not isinstance(value, Pod)


def object_of(event: Event) -> Object:
    """The object of an event of the watch."""
    match event:
        case happened.PodAdded(pod) | happened.PodUpdated(pod) | happened.PodDeleted(pod):
            return pod
        case happened.NodeAdded(node) | happened.NodeUpdated(node) | happened.NodeDeleted(node):
            return node
        case (
            happened.ObjectAdded(value)
            | happened.ObjectUpdated(value)
            | happened.ObjectDeleted(value)
        ):
            return value
    raise TypeError(f"{event} is not of the watch")


def kind_and_key(value: Object) -> tuple[type, str]:
    """What tells objects apart."""
    return type(value), key_of(value)


def added_event(value: Object) -> Event:
    """The event that an object is there."""
    if isinstance(value, Pod):
        return happened.PodAdded(value)
    return happened.NodeAdded(value) if isinstance(value, Node) else happened.ObjectAdded(value)


def updated_event(value: Object) -> Event:
    """The event that an object has changed."""
    if isinstance(value, Pod):
        return happened.PodUpdated(value)
    return happened.NodeUpdated(value) if isinstance(value, Node) else happened.ObjectUpdated(value)


def deleted_event(value: Object) -> Event:
    """The event that an object is gone."""
    if isinstance(value, Pod):
        return happened.PodDeleted(value)
    return happened.NodeDeleted(value) if isinstance(value, Node) else happened.ObjectDeleted(value)
