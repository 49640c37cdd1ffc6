"""In-flight pods: pods being scheduled, and the events that arrived meanwhile.

When an event arrives during an attempt, the rejected pod must not wait for another event. Pops and
events are therefore numbered in order: events with a higher number than a pod's pop arrived while
it was in flight. Events older than every pod in flight are dropped.

Source: kube-scheduler v1.36, backend/queue/active_queue.go.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from stowplan.framework.clusterevents import ClusterEvent

_FORGOTTEN_MAX = 256


class InFlightEvent(msgspec.Struct, frozen=True, gc=False):
    """A cluster event with its object before and after; either may be None."""

    event: ClusterEvent
    old: Any
    new: Any


InFlightLog = list[tuple[int, str | InFlightEvent]]
"""(sequence number, uid of a popped pod or the event)."""


class InFlightPods:
    """Sequence numbers of pods in flight, by uid, and of events."""

    __slots__ = ("_events", "_moments", "_now", "_order", "_place")

    def __init__(self) -> None:
        # A sequence number counts the pods and events before it. _moments are those of _events,
        # ascending. _order keeps a finished pod until it reaches the front.
        self._now = 0
        self._place: dict[str, int] = {}
        self._order: deque[tuple[int, str]] = deque()
        self._events: list[InFlightEvent] = []
        self._moments: list[int] = []

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, uid: str) -> bool:
        return uid in self._place

    def has_any(self, uids: Iterable[str]) -> bool:
        """True where one of these pods is in flight."""
        return not self._place.keys().isdisjoint(uids)

    @property
    def moment(self) -> int:
        """Current sequence number."""
        return self._now

    def start(self, uid: str) -> bool:
        """Mark a popped pod as in flight; False, without effect, when it already is."""
        if uid in self._place:
            return False
        self._now = now = self._now + 1
        self._place[uid] = now
        self._order.append((now, uid))
        return True

    def start_some(self, uids: Iterable[str]) -> int:
        """Mark popped pods as in flight, up to the first that already is; returns how many."""
        place, order, first = self._place, self._order, self._now
        now = first
        for uid in uids:
            if uid in place:
                break
            now += 1
            place[uid] = now
            order.append((now, uid))
        self._now = now
        return now - first

    def start_all(self, uids: Iterable[str]) -> None:
        """Mark popped pods, none of which is in flight, as in flight."""
        now = self._now
        for uid in uids:
            now += 1
            self._place[uid] = now
            self._order.append((now, uid))
        self._now = now

    def note(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """Record an event; dropped when no pod is in flight."""
        if self._place:
            self._now += 1
            self._events.append(InFlightEvent(event, old, new))
            self._moments.append(self._now)

    def since(self, uid: str) -> list[InFlightEvent]:
        """The events since a pod in flight was popped, oldest first."""
        return self._events[bisect_right(self._moments, self._place[uid]) :]

    def done(self, uid: str) -> bool:
        """End an attempt; False when the pod was not in flight."""
        if self._place.pop(uid, None) is None:
            return False
        self._trim()
        return True

    def done_all(self, uids: Iterable[str]) -> None:
        """End several attempts."""
        end = self._place.pop
        for uid in uids:
            end(uid, None)
        self._trim()

    def _trim(self) -> None:
        """Forget the pods and events before the oldest pod in flight."""
        place, order = self._place, self._order
        if not place:
            order.clear()
            if self._events:
                self._events.clear()
                self._moments.clear()
            return
        while place.get(order[0][1]) != order[0][0]:
            order.popleft()
        if self._events:
            self._forget(bisect_right(self._moments, order[0][0]))

    def pods(self) -> list[str]:
        """Uids of the pods in flight, in pop order."""
        return list(self._place)

    def log(self) -> list[str | InFlightEvent]:
        """Pods (as uids) and events in order, from the oldest pod in flight on."""
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
