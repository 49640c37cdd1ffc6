"""Watch stream: the changes of a simulated cluster as informers deliver them to one scheduler.

Nodes and pods have separate streams, so one may lag behind the other; each keeps its order. A
stream that breaks resumes at its version; when that version has expired, or the scheduler has just
started, it relists, and objects deleted meanwhile get a deletion event.
"""

from __future__ import annotations

from collections.abc import Callable

from stowplan.framework.object_store import key_of
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.messages.watch_events import added_event, deleted_event, updated_event
from stowplan.objects.meta import Object
from stowplan.simulation.cluster.simulated_cluster import ResourceVersionExpired, SimulatedCluster

KnownObjects = dict[tuple[type, str], Object]

_DELETED = (happened.PodDeleted, happened.NodeDeleted, happened.ObjectDeleted)


class WatchStream:
    """Changes of some kinds. version: last delivered resource version, -1 before the first list.
    n_lists: number of lists."""

    def __init__(self, cluster: SimulatedCluster, concerns: Callable[[Object], bool]) -> None:
        self.version = -1
        self.n_lists = 0
        self._cluster = cluster
        self._concerns = concerns
        self._known_objects: KnownObjects = {}

    def take(self, most: int | None = None) -> list[Event]:
        """The next events, `most` at most; a list is returned whole."""
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
        """Drop the version, so that the next take relists."""
        self.version = -1

    def relist(self) -> list[Event]:
        """List all objects, as events against the known objects."""
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
        """Update events of some known objects, as a resync delivers them."""
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
    """True for every object."""
    return True


def object_of(event: Event) -> Object:
    """The object of a watch event."""
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
    raise TypeError(f"not a watch event: {event}")


def kind_and_key(value: Object) -> tuple[type, str]:
    """Identity of an object."""
    return type(value), key_of(value)
