"""SchedulerContext: state shared by the parts of the scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from stowplan.cache import Cache
from stowplan.columns.invariants import InvariantBroken
from stowplan.framework import Framework
from stowplan.framework.clusterevents import (
    ANYTHING,
    ASSIGNED_POD_DELETE,
)
from stowplan.framework.handle_state import HandleState
from stowplan.framework.object_store import ObjectChange
from stowplan.framework.pod_groups.pod_group_states import PodGroupStates
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event, WriteDone, WriteFailed
from stowplan.messages.extender_api import EXTENDER, HTTPExtender
from stowplan.objects.pod import Pod
from stowplan.queue import SchedulingQueue
from stowplan.scheduler.extenders.interest import InterestedExtenders
from stowplan.scheduler.lanes.lane_list import LaneList
from stowplan.scheduler.options import KUBE_SCHEDULER_1_36, SchedulerOptions
from stowplan.scheduler.outbox import Outbox
from stowplan.scheduler.pods.pod_records import PodTable

EVENT_LOG_LENGTH = 2000
EVENT_LOG_LINES_MAX = 20


class SchedulerContext:
    """Shared state: configuration, cache, queue, outbox and the current time.

    now: nanoseconds since an origin that is a whole second. pods: those of the table. gates: of
    all profiles. session_frameworks: of lanes that decide in sessions. pod_groups: members of
    groups; None where pods are scheduled one by one.
    """

    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        cache: Cache,
        options: SchedulerOptions,
        extenders: Iterable[HTTPExtender] = (),
        others: Mapping[str, Framework] | None = None,
    ) -> None:
        """others: frameworks of pods that profiles do not decide; the queue has their plugins where
        there are no profiles."""
        self.frameworks = dict(frameworks)
        self.session_frameworks = dict(others or {})
        frameworks = frameworks or others or {}
        self.extenders = InterestedExtenders(extenders)
        self.cache = cache
        self.table = PodTable()
        self.pods = self.table.pods
        self.options = options
        self.queue = SchedulingQueue.of(
            frameworks, self.pods.get, cache.object_store, options.queue, self.rejecters
        )
        cache.use_nominations(self.queue.nominator)
        first = next(iter(frameworks.values()))
        self.shared: HandleState = first.shared
        self.gates = first.gates
        self.pod_groups: PodGroupStates | None = None
        if self.gates.generic_workload:
            keeps_bound = options.compat == KUBE_SCHEDULER_1_36
            self.pod_groups = self.shared.pod_groups = PodGroupStates(keeps_bound=keeps_bound)
        # Whether the defects of kube-scheduler with pod groups are reproduced.
        self.has_defects = self.pod_groups is not None and options.compat == KUBE_SCHEDULER_1_36
        self.shared.has_group_defects = self.has_defects
        self.now = 0
        self.outbox = Outbox(leads=options.leads, term=options.term)
        # Objects of the writes that PostFilter asked for, by effect.
        self._requested: dict[int, ObjectChange] = {}
        self.lanes = LaneList()
        # The latest messages; an integer is the time of the messages after it.
        self._event_log: deque[int | Event | Effect] = deque(maxlen=EVENT_LOG_LENGTH)

    @property
    def rejecters(self) -> tuple[str, ...]:
        """Names of rejecters that are not plugins."""
        return (EXTENDER,) if len(self.extenders) else ()

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

    def write_requested(self, uid: str) -> None:
        """Write what PostFilter asked for on behalf of a pod. Nothing waits for the outcome; after
        a refused write, and after a deletion, the pod is retried, so that it is decided again."""
        requested = self.shared.to_write
        if requested:
            for change in requested:
                self._requested[self.outbox.write(uid, change)] = change
            requested.clear()

    def requested_write_ended(self, event: WriteDone | WriteFailed) -> None:
        """The outcome of a write that PostFilter asked for, or of one without a waiter."""
        change = self._requested.pop(event.effect, None)
        if change is None:
            return
        if not isinstance(event, WriteDone):
            self.cache.object_store.restore(change.value)
        elif change.patch:
            # The watch shows the object, which retries the pods that wait for it.
            return
        # The pod backs off as after any attempt. Differs: no plugin of the original waits for the
        # deletion of an object, nor for a refusal.
        self.queue.move(ANYTHING, None, None, self.now, lambda pod: pod.uid == event.uid)

    def resources_released(self, pod: Pod, node: str, but: str = "") -> None:
        """Retry pods that the resources of an assumed pod may help. but: uid of a pod to leave
        out."""
        only = (lambda other: other.uid != but) if but else None
        self.queue.move(ASSIGNED_POD_DELETE, placed_on(pod, node), None, self.now, only)

    def end_nomination(self, pod: Pod, uid: str, node: str) -> None:
        """The pod is assumed on a node, and not nominated any more."""
        nominated = self.queue.nominator.node_of(uid)
        self.queue.nominator.drop(uid)
        if nominated:
            self.nomination_ended(pod, nominated, node)

    def nomination_ended(self, pod: Pod, nominated: str, node: str) -> None:
        """The pod was nominated to one node and is on another, or nominated to it: retry the pods
        for which it counted there.

        Differs: the original wakes none of them (issue 134859), so that they wait for the
        unschedulable flush; here with `compat` only.
        """
        if nominated != node and not self.has_defects:
            self.requeue_lower_priority(nominated_to(pod, nominated), but=pod.uid)

    def requeue_lower_priority(self, pod: Pod, but: str = "") -> None:
        """Retry pods of the same or lower priority, from which a nomination of the pod held
        resources. but: uid of a pod to leave out."""
        priority = pod.priority

        def only(other: Pod) -> bool:
            return other.priority <= priority and other.uid != but

        self.queue.move(ASSIGNED_POD_DELETE, pod, None, self.now, only)


def placed_on(pod: Pod, node: str) -> Pod:
    """The pod with a node name, for events about the resources that it releases there."""
    return replace(pod, spec=replace(pod.spec, node_name=node))


def nominated_to(pod: Pod, node: str) -> Pod:
    """The pod with its nomination as the API server has it, or will have it soon."""
    return replace(pod, status=replace(pod.status, nominated_node_name=node))


def _concerns_pod(message: Event | Effect, uid: str) -> bool:
    pod = getattr(message, "pod", None)
    return getattr(message, "uid", None) == uid or (pod is not None and pod.uid == uid)
