"""Delayed watch: delivers a watch stream to one scheduler, with latency, gaps and repeats."""

from __future__ import annotations

from collections.abc import Callable

from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.cluster.watch_stream import WatchStream


class DelayedWatch:
    """lag: latency of a change, in nanoseconds. batch_max: events per delivery; None: all."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        stream: WatchStream,
        instance: SchedulerInstance,
        lag: Callable[[], int],
        batch_max: Callable[[], int | None],
    ) -> None:
        self.stream = stream
        self._cluster = cluster
        self._instance = instance
        self._lag = lag
        self._batch_max = batch_max
        self._closed_until = 0
        cluster.on_change.append(self._changed)
        self._changed()

    def stop(self) -> None:
        """Stop delivering; the scheduler has ended."""
        self._cluster.on_change.remove(self._changed)

    def close(self, span: int, *, expired: bool = False) -> None:
        """Deliver nothing for `span` nanoseconds; expired: then relist."""
        if expired:
            self.stream.expire()
        self._closed_until = max(self._closed_until, self._cluster.event_queue.now + span)
        self._cluster.event_queue.at(self._closed_until, self._pull)

    def open(self) -> None:
        """End a gap and deliver everything that is due."""
        self._closed_until = 0
        self._pull()

    def repeat(self, choice: int) -> None:
        """Deliver some known objects once more, as a resync does."""
        if self._cluster.event_queue.now >= self._closed_until:
            for event in self.stream.repeat(choice, 1 + choice % 5):
                self._instance.deliver(event)

    def _changed(self) -> None:
        self._cluster.event_queue.after(self._lag(), self._pull)

    def _pull(self) -> None:
        event_queue = self._cluster.event_queue
        if event_queue.now < self._closed_until or not self._instance.runs:
            return
        for event in self.stream.take(self._batch_max()):
            self._instance.deliver(event)
        if self.stream.version < self._cluster.version:
            event_queue.after(1, self._pull)


def is_pod(value: Object) -> bool:
    """True for pods."""
    return isinstance(value, Pod)


def is_not_pod(value: Object) -> bool:
    """True for all other kinds."""
    return not isinstance(value, Pod)
