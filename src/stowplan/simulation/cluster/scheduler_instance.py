"""Scheduler instance: a scheduler with its watch streams and API dispatcher in a simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.cluster.cluster_api import ClusterApi, EventSource
from stowplan.simulation.cluster.effect_dispatcher import EffectDispatcher
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.cluster.simulated_dispatcher import SimulatedDispatcher

IDLE = to_do.Wake | to_do.RecordEvent | to_do.Report | to_do.PatchStatus
"""Effects on which no further attempt depends."""

IDLE_MIN, IDLE_PER_POD = 3, 3
"""Idle calls at one time, above which calls are delayed, twice as long each time."""

PAUSE_MIN, PAUSE_MAX = SECOND // 1000, SECOND

Observer = Callable[["SchedulerInstance", list[Event], list[Effect]], None]
"""Called after every `handle` call with its events and effects."""


class SchedulerInstance:
    """A scheduler process. streams: its watches. observer: called after every `handle` call.
    dispatcher: performs its effects; None: on a simulated cluster.

    The scheduler is called when events have arrived and at its next Wake. frozen: the process does
    nothing; events queue up. quiet_until: a time before which nothing happens but calls of the
    scheduler; None: unknown.
    """

    def __init__(
        self,
        name: str,
        cluster: ClusterApi,
        scheduler: Scheduler,
        streams: Sequence[EventSource],
        observer: Observer | None = None,
        dispatcher: EffectDispatcher | None = None,
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.scheduler = scheduler
        self.streams = streams
        if dispatcher is None:
            assert isinstance(cluster, SimulatedCluster), "another cluster needs its own dispatcher"
            dispatcher = SimulatedDispatcher(cluster, scheduler.plugin_io)
        self.dispatcher = dispatcher
        dispatcher.answer = self.deliver
        self.heads_max: int | None = None
        self.quiet_until: Callable[[], int | None] = lambda: None
        self.runs = True
        self.frozen = False
        self._observer = observer
        self._inbox: list[Event] = []
        self._is_due = False
        self._is_synced = False
        self._alarm: int | None = None
        self._called_at = -1
        self._n_idle = 0
        self._pause = 0

    @property
    def is_due(self) -> bool:
        """True when a call is scheduled."""
        return self._is_due

    def follow(self) -> None:
        """Deliver every change of the cluster as it happens."""
        self.cluster.on_change.append(self.schedule_call)
        self.schedule_call()

    def deliver(self, event: Event) -> None:
        """Deliver an event."""
        self._inbox.append(event)
        self.schedule_call()

    def schedule_call(self) -> None:
        """Schedule a call after all other actions of this time."""
        if not self._is_due:
            self._is_due = True
            self.cluster.event_queue.after(self._pause, self._due)

    def _due(self) -> None:
        self._is_due = False
        if not self.runs or self.frozen:
            return
        events: list[Event] = []
        for stream in self.streams:
            events += stream.take()
        if self.streams and not self._is_synced:
            # The first take is the initial list.
            self._is_synced = True
            events.append(happened.Synced())
        self.call(events)

    def call(self, watched: list[Event]) -> None:
        """Call `handle` with watch events and all other delivered events."""
        if not self.runs:
            return
        events, self._inbox = watched + self._inbox, []
        now = self.cluster.event_queue.now
        if not events and (self._alarm is None or self._alarm > now):
            return
        if self._alarm is not None and self._alarm <= now:
            self._alarm = None
        effects = self.scheduler.handle(events, now, self.heads_max)
        self._throttle_idle_calls(now, effects)
        if self._observer is not None:
            self._observer(self, events, effects)
        take = self.dispatcher.take
        for effect in effects:
            if isinstance(effect, to_do.Wake):
                self._alarm = effect.at
                self.cluster.event_queue.at(effect.at, self._on_alarm, effect.at)
            elif not isinstance(effect, to_do.RecordEvent | to_do.Report):
                take(effect)

    def _throttle_idle_calls(self, now: int, effects: list[Effect]) -> None:
        """Delay idle calls: plugins may requeue pods at once without end, which takes time in a
        real process, but would stop virtual time here."""
        does = any(not isinstance(effect, IDLE) for effect in effects)
        if does or (now > self._called_at and not self._pause):
            self._n_idle = self._pause = 0
        self._called_at = now
        self._n_idle += 1
        more = self._n_idle - IDLE_MIN
        # Pods are counted for a call that is one of many only.
        if more > 0 and more > IDLE_PER_POD * self.scheduler.n_waiting:
            self._pause = min(max(2 * self._pause, PAUSE_MIN), PAUSE_MAX)

    def _on_alarm(self, at: int) -> None:
        # A later Wake may have replaced this one.
        if self._alarm == at and not self._has_skipped():
            self.schedule_call()

    def _has_skipped(self) -> bool:
        """True if nothing has to be done now: the scheduler would refuse the same pods again, and
        has counted these refusals up to the next event."""
        if self._is_due or self._pause or not self.runs or self.frozen:
            return False
        until = self.quiet_until()
        wake = None if until is None else self.scheduler.repeat_refusals(until)
        if wake is None:
            return False
        self._alarm = wake
        self.cluster.event_queue.at(wake, self._on_alarm, wake)
        return True

    def stop(self) -> None:
        """End the process: no calls, no requests, no events any more."""
        self.runs = False
        self.dispatcher.close()
        if self.schedule_call in self.cluster.on_change:
            self.cluster.on_change.remove(self.schedule_call)
