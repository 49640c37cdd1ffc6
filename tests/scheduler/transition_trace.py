"""TransitionTrace: observes that the states of pods change as the transition table says.

The methods that the table names are wrapped; what a method changes, without the methods that it
calls, must be a transition of its event. A state that changes elsewhere is an error too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from stowplan.queue import PodRecord
from stowplan.queue.pod_record import PodState
from stowplan.scheduler import Scheduler
from stowplan.scheduler.pods.transitions import BULK_METHODS, TRANSITIONS, PodEvent

States = dict[str, PodState]
BEGINS = (PodState.NEW, PodState.AWAITING_SESSION)
"""States of a record that was just made."""


class TransitionTrace:
    """taken: number of times that each transition was taken, of all schedulers followed."""

    def __init__(self) -> None:
        self.taken: Counter[tuple[PodState, PodEvent]] = Counter()

    def follow(self, scheduler: Scheduler) -> None:
        """Observe a scheduler from now on."""
        _Follower(scheduler, self.taken)

    def missing(self) -> list[str]:
        """Transitions that were not taken."""
        return [_named(*one) for one in TRANSITIONS if one not in self.taken]

    def report(self) -> str:
        """How often each transition was taken."""
        return "\n".join(f"{self.taken[one]:6} {_named(*one)}" for one in TRANSITIONS)


class _Follower:
    def __init__(self, scheduler: Scheduler, taken: Counter[tuple[PodState, PodEvent]]) -> None:
        self._table = scheduler.pods
        self._taken = taken
        self._records: dict[str, PodRecord] = {}
        # States before the changes of each method under way, the outermost first; the first
        # element is of changes outside of them.
        self._before: list[States] = [{}]
        self._events: list[PodEvent] = []
        owners = {
            "queue": scheduler.queue,
            "lane": scheduler.pod_lane,
            "attempts": scheduler.extender_attempts,
            "bindings": scheduler.bindings,
            "prebind": scheduler.bindings.prebind,
        }
        for method, event in BULK_METHODS.items():
            owner, _, name = method.partition(".")
            self._wrap(owners[owner], name, event)
        self._transition = self._table.transition
        self._table.transition = self.transition  # type: ignore[method-assign]

    def _wrap(self, owner: object, name: str, event: PodEvent) -> None:
        method: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any, **named: Any) -> Any:
            self._begin(event)
            try:
                return method(*args, **named)
            finally:
                self._end()

        setattr(owner, name, call)

    def transition(self, record: PodRecord, event: PodEvent, about: Any = None) -> Any:
        """As PodTable.transition; a transition that leaves the state as it is counts too."""
        state, row = record.state, TRANSITIONS.get((record.state, event))
        if row is None or row.method in BULK_METHODS:
            return self._transition(record, event, about)
        self._begin(event)
        try:
            return self._transition(record, event, about)
        finally:
            self._end()
            if record.state is state and self._table.records.get(record.uid) is record:
                self._take(record.uid, state, event, state)

    def _begin(self, event: PodEvent) -> None:
        now = self._now()
        if not self._events:
            assert now == self._before[0], f"changed outside of transitions: {self._changes(now)}"
        self._before.append(now)
        self._events.append(event)

    def _end(self) -> None:
        event, before, now = self._events.pop(), self._before.pop(), self._now()
        changed = {uid: state for uid, state in now.items() if before.get(uid) is not state}
        for uid, state in changed.items():
            self._take(uid, before.get(uid, PodState.NEW), event, state)
        self._rebase(before, now)
        if not self._events:
            for uid in self._records.keys() - self._table.records.keys():
                del self._records[uid], self._before[0][uid]

    def _rebase(self, began: States, now: States) -> None:
        """Leave out what an inner method changed from the changes of the outer ones."""
        for uid, state in now.items():
            if began.get(uid) is state:
                continue
            inner = began.get(uid, PodState.NEW)
            for level in reversed(range(len(self._before))):
                outer = self._before[level].get(uid, inner)
                self._before[level][uid] = state
                if level and outer is not inner:
                    # Changed by the outer method before it called the inner one.
                    self._take(uid, outer, self._events[level - 1], inner)
                inner = outer

    def _take(self, uid: str, before: PodState, event: PodEvent, after: PodState) -> None:
        row = TRANSITIONS.get((before, event))
        assert row is not None, f"{uid}: no transition for {_named(before, event)}"
        assert after in row.targets, f"{uid}: {_named(before, event)} led to {after.label}"
        self._taken[before, event] += 1

    def _now(self) -> States:
        """States of all records; of dropped ones, where they ended."""
        self._records |= self._table.records
        now = {uid: record.state for uid, record in self._records.items()}
        for uid, state in now.items():
            if state in BEGINS and uid not in self._before[-1]:
                for states in self._before:
                    states.setdefault(uid, state)
        return now

    def _changes(self, now: States) -> dict[str, tuple[str, str]]:
        before = self._before[0]
        return {
            uid: (before.get(uid, PodState.NEW).label, state.label)
            for uid, state in now.items()
            if before.get(uid) is not state
        }


def _named(state: PodState, event: PodEvent) -> str:
    return f"{state.label}, {event.label}"
