"""Feed: brings a stream of a watch to one scheduler, late and through all that befalls it."""

from __future__ import annotations

from collections.abc import Callable

from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.cluster.watch_stream import WatchStream


class DelayedWatch:
    """lag: how long a change takes to arrive. most: how many may arrive at once."""

    def __init__(
        self,
        world: SimulatedCluster,
        stream: WatchStream,
        instance: SchedulerInstance,
        lag: Callable[[], int],
        most: Callable[[], int | None],
    ) -> None:
        self.stream = stream
        self._world = world
        self._instance = instance
        self._lag = lag
        self._most = most
        self._closed_until = 0
        world.on_change.append(self._changed)
        self._changed()

    def stop(self) -> None:
        """The scheduler is no more."""
        self._world.on_change.remove(self._changed)

    def close(self, span: int, *, expired: bool = False) -> None:
        """Show nothing for a while; expired: then list anew."""
        if expired:
            self.stream.expire()
        self._closed_until = max(self._closed_until, self._world.event_queue.now + span)
        self._world.event_queue.at(self._closed_until, self._pull)

    def open(self) -> None:
        """Show all that there is, from now on without a break."""
        self._closed_until = 0
        self._pull()

    def repeat(self, choice: int) -> None:
        """Show something again."""
        if self._world.event_queue.now >= self._closed_until:
            for event in self.stream.repeat(choice, 1 + choice % 5):
                self._instance.deliver(event)

    def _changed(self) -> None:
        self._world.event_queue.after(self._lag(), self._pull)

    def _pull(self) -> None:
        event_queue = self._world.event_queue
        if event_queue.now < self._closed_until or not self._instance.runs:
            return
        for event in self.stream.take(self._most()):
            self._instance.deliver(event)
        if self.stream.version < self._world.version:
            event_queue.after(1, self._pull)
