"""Events that wait to be posted while pods are bound.

An Event costs the API server almost as much as a Binding. So that Events do not cost the rate of
bindings, one is posted at a time while other writes wait or are under way; as soon as there are
none, many are. Under lasting load they are delivered too: once the oldest has waited for
`EVENT_AGE_MAX`, or more than `EVENTS_HELD_MAX` wait, many are posted beside the bindings.

Differs: client-go (v1.36, tools/events event_broadcaster) queues 1,000 events, drops further ones,
and posts each in a goroutine of its own, through a client whose rate limit (50 a second with a
burst of 100, unless configured) is separate from that of the bindings. With that limit the Events
of a large backlog take minutes, and while their goroutines run, events of one object may overtake
each other; here they are in order.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from stowplan.client.api_calls import RequestTime
from stowplan.messages.effects import RecordEvent
from stowplan.objects.encoding.duration import SECOND

PENDING_EVENTS_MAX = 50_000
"""Events that wait at most; further ones are dropped. An event takes about 1 KB."""
EVENTS_HELD_MAX = 10_000
"""Events that are held back for bindings: what is posted within the time that a shutdown has."""
EVENT_AGE_MAX = 20 * SECOND
"""How long an event is held back for bindings, in nanoseconds."""
EVENTS_AT_ONCE_MAX = 64
"""Requests at once when nothing is held back."""


class PendingEvent(NamedTuple):
    """An event and when it happened. version: resource version of the pod at that time, "" if
    unknown or not about a pod."""

    effect: RecordEvent
    moment: RequestTime
    version: str


class PendingEvents:
    """Events in the order in which they happened; of one object one is under way at a time.

    n_under_way: events that were taken by `next` and are not done. n_dropped: events that were not
    queued because too many waited.
    """

    def __init__(self) -> None:
        self.n_under_way = 0
        self.n_dropped = 0
        self._waiting: deque[PendingEvent] = deque()
        # By uid of an object with an event under way: its next events, whose turn has come.
        self._blocked: dict[str, list[PendingEvent]] = {}
        self._n_blocked = 0

    def __len__(self) -> int:
        """Number of events that wait, without those under way."""
        return len(self._waiting) + self._n_blocked

    def add(self, event: PendingEvent) -> bool:
        """Queue an event; False if it was dropped."""
        if len(self) >= PENDING_EVENTS_MAX:
            self.n_dropped += 1
            return False
        self._waiting.append(event)
        return True

    def n_allowed(self, now: int, *, is_busy: bool) -> int:
        """Number of events that may be started now. is_busy: other writes wait or are under way.
        now: as `RequestTime.now`."""
        if not self._waiting:
            return 0
        is_held = (
            is_busy
            and len(self) <= EVENTS_HELD_MAX
            and now - self._waiting[0].moment.now < EVENT_AGE_MAX
        )
        at_once = 1 if is_held else EVENTS_AT_ONCE_MAX
        return max(0, min(at_once - self.n_under_way, len(self._waiting)))

    def next(self, now: int, *, is_busy: bool) -> PendingEvent | None:
        """Take the event that is to be posted now, None if there is none; call `done` after it."""
        while self.n_allowed(now, is_busy=is_busy):
            event = self._waiting.popleft()
            blocked = self._blocked.get(event.effect.uid)
            if blocked is None:
                self._blocked[event.effect.uid] = []
                self.n_under_way += 1
                return event
            blocked.append(event)
            self._n_blocked += 1
        return None

    def done(self, event: PendingEvent) -> None:
        """An event was posted, or given up: the next one of its object may follow."""
        self.n_under_way -= 1
        blocked = self._blocked.pop(event.effect.uid)
        self._n_blocked -= len(blocked)
        place, waiting = 0, self._waiting
        for one in blocked:
            # Only others that were released like this are older, so that the place is near.
            while place < len(waiting) and waiting[place].moment.now <= one.moment.now:
                place += 1
            waiting.insert(place, one)
