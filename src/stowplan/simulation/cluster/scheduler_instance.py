"""Instance: a scheduler that runs in a world: a machine, what it is shown, and its desk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.cluster.simulated_dispatcher import SimulatedDispatcher
from stowplan.simulation.cluster.watch_stream import WatchStream

IDLE = to_do.Wake | to_do.RecordEvent | to_do.Report | to_do.PatchStatus
"""Effects that change nothing which another attempt depends on."""

IDLE_MIN, IDLE_PER_POD = 3, 3
"""After more idle calls than these at one moment time passes: a pause, twice as long each time."""

PAUSE_MIN, PAUSE_MAX = SECOND // 1000, SECOND

Observer = Callable[["SchedulerInstance", list[Event], list[Effect]], None]
"""Told of every call of the machine: what went in, and what came out."""


class SchedulerInstance:
    """name: of the process. streams: what it watches. observer: told of every call.

    The machine is called when something has arrived for it, and when it has asked for that.
    frozen: the process is there and does nothing; what arrives for it waits.
    """

    def __init__(
        self,
        name: str,
        world: SimulatedCluster,
        scheduler: Scheduler,
        streams: Sequence[WatchStream],
        observer: Observer | None = None,
    ) -> None:
        self.name = name
        self.world = world
        self.scheduler = scheduler
        self.streams = streams
        self.dispatcher = SimulatedDispatcher(world, self.deliver, scheduler.plugin_io)
        self.heads_max: int | None = None
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
        """True when it is about to be called."""
        return self._is_due

    def follow(self) -> None:
        """Show every change to the machine as it happens."""
        self.world.on_change.append(self.schedule_call)
        self.schedule_call()

    def deliver(self, event: Event) -> None:
        """Something has arrived for the machine."""
        self._inbox.append(event)
        self.schedule_call()

    def schedule_call(self) -> None:
        """Call the machine when everything else of this moment has happened."""
        if not self._is_due:
            self._is_due = True
            self.world.event_queue.after(self._pause, self._due)

    def _due(self) -> None:
        self._is_due = False
        if not self.runs or self.frozen:
            return
        events: list[Event] = []
        for stream in self.streams:
            events += stream.take()
        if self.streams and not self._is_synced:
            # Their first take is a list of all there is.
            self._is_synced = True
            events.append(happened.Synced())
        self.call(events)

    def call(self, shown: list[Event]) -> None:
        """Call the machine with what the watch shows now, and all else that has arrived."""
        if not self.runs:
            return
        events, self._inbox = shown + self._inbox, []
        now = self.world.event_queue.now
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
                self.world.event_queue.at(effect.at, self._on_alarm, effect.at)
            elif not isinstance(effect, to_do.RecordEvent | to_do.Report):
                take(effect)

    def _throttle_idle_calls(self, now: int, effects: list[Effect]) -> None:
        """Plugins may have pods tried again at once, without end: in a process that takes time, and
        so it has to here, or nothing else would ever happen."""
        does = any(not isinstance(effect, IDLE) for effect in effects)
        if does or (now > self._called_at and not self._pause):
            self._n_idle = self._pause = 0
        self._called_at = now
        self._n_idle += 1
        if self._n_idle > IDLE_MIN + IDLE_PER_POD * self.scheduler.n_waiting:
            self._pause = min(max(2 * self._pause, PAUSE_MIN), PAUSE_MAX)

    def _on_alarm(self, at: int) -> None:
        # A later Wake may have taken the place of this one.
        if self._alarm == at:
            self.schedule_call()

    def stop(self) -> None:
        """The process ends: it is not called any more, sends nothing and hears nothing."""
        self.runs = False
        self.dispatcher.close()
        if self.schedule_call in self.world.on_change:
            self.world.on_change.remove(self.schedule_call)
