"""InFlight: pods being scheduled, and what happened meanwhile.

A pod that is refused while an event arrives must not be parked as if nothing had happened. So it
is kept in which order pods were popped and events arrived: what arrived after a pod was popped
happened while it was in flight. Events that are older than every pod in flight are forgotten.

Source: kube-scheduler v1.36, backend/queue/active_queue.go.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Any

import msgspec

from stowplan.framework.clusterevents import ClusterEvent

_FORGOTTEN_MAX = 256


class InFlightEvent(msgspec.Struct, frozen=True, gc=False):
    """An event with the object that it is about, before and after; either may be None."""

    event: ClusterEvent
    old: Any
    new: Any


InFlightLog = list[tuple[int, str | InFlightEvent]]
"""Places in time, and the pod (its uid) or the event that is there."""


class InFlightPods:
    """Pods by uid, each with its place in time, and the events with theirs."""

    __slots__ = ("_events", "_moments", "_now", "_order", "_place")

    def __init__(self) -> None:
        # A place in time is the number of pods and events before it. _moments are those of
        # _events, ascending. In _order a pod that is done stays until it comes up.
        self._now = 0
        self._place: dict[str, int] = {}
        self._order: deque[tuple[int, str]] = deque()
        self._events: list[InFlightEvent] = []
        self._moments: list[int] = []

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, uid: str) -> bool:
        return uid in self._place

    @property
    def moment(self) -> int:
        """The present place in time."""
        return self._now

    def start(self, uid: str) -> bool:
        """A pod has been popped; False, and nothing done, when it is in flight already."""
        if uid in self._place:
            return False
        self._now = now = self._now + 1
        self._place[uid] = now
        self._order.append((now, uid))
        return True

    def note(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """Something has happened; forgotten at once where no pod is in flight."""
        if self._place:
            self._now += 1
            self._events.append(InFlightEvent(event, old, new))
            self._moments.append(self._now)

    def since(self, uid: str) -> list[InFlightEvent]:
        """What has happened since a pod in flight was popped, oldest first."""
        return self._events[bisect_right(self._moments, self._place[uid]) :]

    def done(self, uid: str) -> bool:
        """The attempt is over; False for a pod that was not in flight."""
        place = self._place
        if place.pop(uid, None) is None:
            return False
        order = self._order
        if not place:
            order.clear()
            if self._events:
                self._events.clear()
                self._moments.clear()
            return True
        while place.get(order[0][1]) != order[0][0]:
            order.popleft()
        if self._events:
            self._forget(bisect_right(self._moments, order[0][0]))
        return True

    def pods(self) -> list[str]:
        """The uids of the pods in flight, the one popped first at the head."""
        return list(self._place)

    def log(self) -> list[str | InFlightEvent]:
        """Pods, as their uids, and events in the order of time, from the oldest pod on."""
        if not self._place:
            return []
        pods: InFlightLog = [(place, uid) for uid, place in self._place.items()]
        first = bisect_right(self._moments, pods[0][0])
        events: InFlightLog = list(zip(self._moments[first:], self._events[first:], strict=True))
        return [what for _, what in sorted(pods + events, key=lambda entry: entry[0])]

    def _forget(self, n_events: int) -> None:
        """Drop the oldest events, unless they are too few to be worth moving the rest."""
        if n_events > _FORGOTTEN_MAX and n_events * 2 > len(self._events):
            del self._events[:n_events]
            del self._moments[:n_events]
