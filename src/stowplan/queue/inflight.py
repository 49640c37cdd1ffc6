"""InFlight: pods being scheduled, and what happened meanwhile.

A pod that is refused while an event arrives must not be parked as if nothing had happened. So a
log is kept: each pod that was popped, each event, in the order of time. What stands behind a
pod's own entry happened while it was in flight. Entries at the head that no pod needs any more
are dropped.

Source: kube-scheduler v1.36, backend/queue/active_queue.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from stowplan.framework.clusterevents import ClusterEvent

_DROPPED_MAX = 256


class Happening(msgspec.Struct, frozen=True, gc=False):
    """An event with the object that it is about, before and after; either may be None."""

    event: ClusterEvent
    old: Any
    new: Any


class InFlight:
    """The log, with the place of each pod in it."""

    __slots__ = ("_dropped", "_head", "_log", "_place")

    def __init__(self) -> None:
        # A pod is in the log as its uid. Places count from the beginning of time: the entry of
        # place p stands at p - self._dropped. Before self._head nobody looks any more.
        self._log: list[str | Happening] = []
        self._place: dict[str, int] = {}
        self._dropped = 0
        self._head = 0

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, uid: str) -> bool:
        return uid in self._place

    def start(self, uid: str) -> None:
        """A pod has been popped; it must not be in flight already."""
        self._place[uid] = self._dropped + len(self._log)
        self._log.append(uid)

    def note(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """Something has happened; forgotten at once where no pod is in flight."""
        if self._place:
            self._log.append(Happening(event, old, new))

    def since(self, uid: str) -> list[Happening]:
        """What has happened since a pod in flight was popped, oldest first."""
        behind = self._log[self._place[uid] + 1 - self._dropped :]
        return [entry for entry in behind if isinstance(entry, Happening)]

    def done(self, uid: str) -> bool:
        """The attempt is over; False for a pod that was not in flight."""
        if self._place.pop(uid, None) is None:
            return False
        log, place = self._log, self._place
        if not place:
            self._dropped += len(log)
            log.clear()
            self._head = 0
            return True
        head = self._head
        while not self._is_pod_in_flight(head):
            head += 1
        self._head = head
        if head > _DROPPED_MAX and head * 2 > len(log):
            del log[:head]
            self._dropped += head
            self._head = 0
        return True

    def pods(self) -> list[str]:
        """The uids of the pods in flight, the one popped first at the head."""
        return list(self._place)

    def log(self) -> Iterator[str | Happening]:
        """The log: a uid where a pod was popped, what happened in between; oldest first."""
        for place, entry in enumerate(self._log[self._head :], start=self._head):
            if isinstance(entry, Happening) or self._is_pod_in_flight(place):
                yield entry

    def _is_pod_in_flight(self, index: int) -> bool:
        """True where the log has the uid of a pod whose latest place this is."""
        entry = self._log[index]
        return isinstance(entry, str) and self._place.get(entry) == index + self._dropped
