"""LaneList: the lanes of a scheduler, found by scheduler name and by what they listen to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.framework.deciders.lane import BatchLane, Lane
from stowplan.objects.pod import Pod


class LaneList:
    """The lanes, in the order in which they decide. Each pod is decided by the lane that declares
    its scheduler name.

    batch: those that decide many pods at once. pod_watchers: those that follow pods.
    """

    def __init__(self) -> None:
        self.batch: tuple[BatchLane, ...] = ()
        self.pod_watchers: tuple[Lane, ...] = ()
        self._all: tuple[Lane, ...] = ()
        self._by_name: dict[str, Lane] = {}
        self._listeners: dict[type[Any], tuple[Lane, ...]] = {}

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._all)

    def use(self, queued: Lane, batch: Iterable[BatchLane]) -> None:
        """Set the lanes. They are made after the context that has this list.

        queued: the lane whose pods wait in the scheduling queue.
        """
        self.batch = tuple(batch)
        self._all = (queued, *self.batch)
        self.pod_watchers = tuple(lane for lane in self._all if lane.follows_pods)
        kinds = {kind for lane in self._all for kind in lane.outcomes}
        self._listeners = {
            kind: tuple(lane for lane in self._all if kind in lane.outcomes) for kind in kinds
        }
        self.find_names()

    def find_names(self) -> None:
        """Look up the scheduler names of the lanes again."""
        self._by_name = {name: lane for lane in self._all for name in lane.scheduler_names}

    def listeners(self, kind: type[Any]) -> tuple[Lane, ...]:
        """Lanes that receive outcomes of a type."""
        return self._listeners.get(kind, ())

    def notify(self, outcome: Any) -> None:
        """Tell the lanes about an outcome."""
        for lane in self._listeners.get(type(outcome), ()):
            lane.on_outcome(outcome)

    def of(self, pod: Pod) -> Lane | None:
        """The lane that decides a pod; None for a pod of another scheduler."""
        return self._by_name.get(pod.spec.scheduler_name)

    def is_ours(self, pod: Pod) -> bool:
        """True for a pod that one of the lanes decides."""
        return pod.spec.scheduler_name in self._by_name

    def is_queued(self, pod: Pod) -> bool:
        """True for a pod of a lane whose pods wait in the scheduling queue."""
        lane = self._by_name.get(pod.spec.scheduler_name)
        return lane is not None and lane.is_queued

    @property
    def n_waiting(self) -> int:
        """Number of pods that wait for a node, in the queue and for sessions."""
        return sum(lane.n_waiting for lane in self._all)

    @property
    def n_sessions(self) -> int:
        """Number of sessions so far."""
        return sum(lane.number for lane in self.batch)

    def may_run_session(self, now: int) -> bool:
        """True if a session may start by `now`."""
        return any(lane.due <= now for lane in self.batch)
