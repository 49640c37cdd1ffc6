"""Events that wait to be posted while pods are bound.

An Event costs the API server almost as much as a Binding. So that Events do not cost the rate of
bindings, none is posted while `LOADED_WRITES` other writes wait or are under way, and one at a time
while there are fewer; as soon as there are none, many are. Under lasting load they are delivered
too: once the oldest has waited for `EVENT_AGE_MAX`, or more than `EVENTS_HELD_MAX` wait, many are
posted beside the bindings.

An event that the server has not answered waits for another try. It counts among those at once, so
that a server that is away is asked little, and the others wait meanwhile.

Differs: client-go (v1.36, tools/events event_broadcaster) queues 1,000 events, drops further ones,
and posts each in a goroutine of its own, through a client whose rate limit (50 a second with a
burst of 100, unless configured) is separate from that of the bindings. With that limit the Events
of a large backlog take minutes, and while their goroutines run, events of one object may overtake
each other; here they are in order.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import NamedTuple

from stowplan.client.api_calls import ApiCallSteps, RequestTime
from stowplan.messages.effects import RecordEvent
from stowplan.objects.encoding.duration import SECOND

PENDING_EVENTS_MAX = 50_000
"""Events that wait at most; further ones are dropped. An event takes about 1 KB."""
EVENTS_HELD_MAX = 10_000
"""Events that are held back for bindings: what is posted within the time that a shutdown has."""
EVENT_AGE_MAX = 20 * SECOND
"""How long an event is held back for bindings, in nanoseconds."""
LOADED_WRITES = 64
"""As many writes as are sent at once: they have the server to themselves. Fewer may be slow ones,
which events need not wait for: bindings that wait for devices."""
EVENTS_AT_ONCE_MAX = 64
"""Requests at once when nothing is held back."""


class PendingEvent(NamedTuple):
    """An event and when it happened. version: resource version of the pod at that time, "" if
    unknown or not about a pod. steps: the rest of its requests after a try without an answer, None
    before."""

    effect: RecordEvent
    moment: RequestTime
    version: str
    steps: ApiCallSteps | None = None


class PostponedEvent(NamedTuple):
    """An event that is tried again. until: not before, as `RequestTime.now`. number: order of those
    with the same time."""

    until: int
    number: int
    event: PendingEvent


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
        # A heap.
        self._postponed: list[PostponedEvent] = []
        self._n_postponements = 0

    def __len__(self) -> int:
        """Number of events that wait, without those under way."""
        return len(self._waiting) + self._n_blocked + len(self._postponed)

    @property
    def are_all_postponed(self) -> bool:
        """True when no event waits, but those that are tried again and what follows them."""
        return not self._waiting

    def add(self, event: PendingEvent) -> bool:
        """Queue an event; False if it was dropped."""
        if len(self) >= PENDING_EVENTS_MAX:
            self.n_dropped += 1
            return False
        self._waiting.append(event)
        return True

    def n_allowed(self, now: int, n_writes: int) -> int:
        """Number of events that may be started now. now: as `RequestTime.now`. n_writes: number of
        other writes that wait or are under way."""
        due = self._n_due(now)
        n_ready = due + max(0, min(EVENTS_AT_ONCE_MAX - len(self._postponed), len(self._waiting)))
        if not n_ready:
            return 0
        first = self._postponed[0].event if due else self._waiting[0]
        is_held = (
            n_writes > 0 and len(self) <= EVENTS_HELD_MAX and now - first.moment.now < EVENT_AGE_MAX
        )
        at_once = EVENTS_AT_ONCE_MAX
        if is_held:
            at_once = 1 if n_writes < LOADED_WRITES else 0
        return max(0, min(at_once - self.n_under_way, n_ready))

    def _n_due(self, now: int) -> int:
        return sum(one.until <= now for one in self._postponed) if self._postponed else 0

    def next(self, now: int, n_writes: int) -> PendingEvent | None:
        """Take the event that is to be posted now, None if there is none; call `done` or `postpone`
        after it."""
        while self.n_allowed(now, n_writes):
            if self._n_due(now):
                self.n_under_way += 1
                return heapq.heappop(self._postponed).event
            event = self._waiting.popleft()
            blocked = self._blocked.get(event.effect.uid)
            if blocked is None:
                self._blocked[event.effect.uid] = []
                self.n_under_way += 1
                return event
            blocked.append(event)
            self._n_blocked += 1
        return None

    def postpone(self, event: PendingEvent, until: int) -> None:
        """An event is tried again; those of its object wait until then."""
        self.n_under_way -= 1
        self._n_postponements += 1
        heapq.heappush(self._postponed, PostponedEvent(until, self._n_postponements, event))

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
