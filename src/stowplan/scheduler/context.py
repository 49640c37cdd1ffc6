"""SchedulerContext: state shared by the parts of the scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from stowplan.cache import Cache
from stowplan.columns.invariants import InvariantBroken
from stowplan.framework import Framework
from stowplan.framework.clusterevents import ASSIGNED_POD_DELETE
from stowplan.framework.deciders.lane import Lane
from stowplan.framework.deciders.session_decider import SessionDecider
from stowplan.framework.handle_state import HandleState
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.messages.extender_api import EXTENDER, HTTPExtender
from stowplan.objects.pod import Pod
from stowplan.queue import SchedulingQueue
from stowplan.scheduler.extenders.interest import InterestedExtenders
from stowplan.scheduler.options import SchedulerOptions
from stowplan.scheduler.outbox import Outbox
from stowplan.scheduler.pods.pod_records import PodTable

EVENT_LOG_LENGTH = 2000
EVENT_LOG_LINES_MAX = 20


class SchedulerContext:
    """Shared state: configuration, cache, queue, outbox and the current time.

    now: nanoseconds since an origin that is a whole second. pods: those of the table.
    """

    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        cache: Cache,
        options: SchedulerOptions,
        extenders: Iterable[HTTPExtender] = (),
        sessions: SessionDecider | None = None,
    ) -> None:
        self.frameworks = dict(frameworks)
        if sessions is not None and not frameworks:
            frameworks = dict.fromkeys(sessions.scheduler_names, sessions.framework)
        self.extenders = InterestedExtenders(extenders)
        self.cache = cache
        self.table = PodTable()
        self.pods = self.table.pods
        self.options = options
        others = (EXTENDER,) if len(self.extenders) else ()
        self.queue = SchedulingQueue.of(
            frameworks, self.pods.get, cache.object_store, options.queue, others
        )
        cache.use_nominations(self.queue.nominator)
        self.shared: HandleState = next(iter(frameworks.values())).shared
        self.now = 0
        self.outbox = Outbox(leads=options.leads, term=options.term)
        self.lanes: tuple[Lane, ...] = ()
        self.pod_watchers: tuple[Lane, ...] = ()
        self._lane_of: dict[str, Lane] = {}
        self._listeners: dict[type[Any], tuple[Lane, ...]] = {}
        # The latest messages; an integer is the time of the messages after it.
        self._event_log: deque[int | Event | Effect] = deque(maxlen=EVENT_LOG_LENGTH)

    def note(self, now: int, messages: Iterable[Event | Effect]) -> None:
        """Append messages to the event log."""
        self._event_log.append(now)
        self._event_log.extend(messages)

    def invariant_broken(self, name: str, uid: str) -> InvariantBroken:
        """Build InvariantBroken with the last messages about a pod."""
        lines = []
        at = 0
        for message in self._event_log:
            if isinstance(message, int):
                at = message
            elif _concerns_pod(message, uid):
                lines.append(f"{at} {message}")
        return InvariantBroken("\n".join([f"{name}: pod {uid}", *lines[-EVENT_LOG_LINES_MAX:]]))

    def record_skip_deleting(self, pod: Pod) -> None:
        """Record that scheduling of a pod is skipped because it is being deleted."""
        note = f"skip schedule deleting pod: {pod.key}"
        self.outbox.record(pod, "Warning", "FailedScheduling", "Scheduling", note)

    def activate(self, requested: dict[str, Pod]) -> None:
        """Activate the pods that plugins asked for, by uid; clears `requested`."""
        if requested:
            pods = list(requested.values())
            requested.clear()
            self.queue.activate(pods, self.now)

    def resources_released(self, pod: Pod, node: str, but: str = "") -> None:
        """Retry pods that the resources of an assumed pod may help. but: uid of a pod to leave
        out."""
        only = (lambda other: other.uid != but) if but else None
        self.queue.move(ASSIGNED_POD_DELETE, placed_on(pod, node), None, self.now, only)

    def requeue_lower_priority(self, pod: Pod) -> None:
        """Retry pods of the same or lower priority, from which a nomination of the pod held
        resources."""
        priority = pod.priority
        self.queue.move(
            ASSIGNED_POD_DELETE, pod, None, self.now, lambda other: other.priority <= priority
        )

    # Lanes.

    def use_lanes(self, lanes: Iterable[Lane]) -> None:
        """Set the lanes, in the order in which they decide."""
        self.lanes = tuple(lanes)
        self.pod_watchers = tuple(lane for lane in self.lanes if lane.follows_pods)
        self._lane_of = {name: lane for lane in self.lanes for name in lane.scheduler_names}
        kinds = {kind for lane in self.lanes for kind in lane.outcomes}
        self._listeners = {
            kind: tuple(lane for lane in self.lanes if kind in lane.outcomes) for kind in kinds
        }

    def listeners(self, kind: type[Any]) -> tuple[Lane, ...]:
        """Lanes that receive outcomes of a type."""
        return self._listeners.get(kind, ())

    def notify(self, outcome: Any) -> None:
        """Tell the lanes about an outcome."""
        for lane in self._listeners.get(type(outcome), ()):
            lane.on_outcome(outcome)

    def lane_of(self, pod: Pod) -> Lane | None:
        """The lane that decides a pod; None for a pod of another scheduler."""
        return self._lane_of.get(pod.spec.scheduler_name)

    def is_ours(self, pod: Pod) -> bool:
        """True for a pod that one of our lanes decides."""
        return pod.spec.scheduler_name in self._lane_of

    def is_queued(self, pod: Pod) -> bool:
        """True for a pod of a lane whose pods wait in the scheduling queue."""
        lane = self._lane_of.get(pod.spec.scheduler_name)
        return lane is not None and lane.is_queued


def placed_on(pod: Pod, node: str) -> Pod:
    """The pod with a node name, for events about the resources that it releases there."""
    return replace(pod, spec=replace(pod.spec, node_name=node))


def _concerns_pod(message: Event | Effect, uid: str) -> bool:
    pod = getattr(message, "pod", None)
    return getattr(message, "uid", None) == uid or (pod is not None and pod.uid == uid)
