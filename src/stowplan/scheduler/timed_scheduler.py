"""TimedScheduler: a scheduler that measures event handling and Permit waits.

Differs: an update is one event here, not one for each kind of change in it.

Source: kube-scheduler v1.36, scheduler/metrics, eventhandlers.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from stowplan.framework.clusterevents import (
    ASSIGNED_POD,
    NODE,
    RESOURCE_OF_KIND,
    UNSCHEDULABLE_POD,
    Action,
    ClusterEvent,
)
from stowplan.framework.handle_state import WaitingPod
from stowplan.framework.metrics import Histogram, Metrics
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.scheduler.pod_groups.group_cycle import GroupReport
from stowplan.scheduler.pod_groups.member_arrivals import MembersAdded
from stowplan.scheduler.scheduler import Scheduler

EVENT_SECONDS = "scheduler_event_handling_duration_seconds"
PERMIT_SECONDS = "scheduler_permit_wait_duration_seconds"
EVENT_BUCKETS = tuple(0.0001 * 2**k for k in range(12))
PERMIT_BUCKETS = tuple(0.001 * 2**k for k in range(15))
GROUP_ATTEMPTS = "scheduler_podgroup_schedule_attempts_total"
GROUP_ATTEMPT_SECONDS = "scheduler_podgroup_scheduling_attempt_duration_seconds"
GROUP_ALGORITHM_SECONDS = "scheduler_podgroup_scheduling_algorithm_duration_seconds"
GROUP_BUCKETS = tuple(0.001 * 2**k for k in range(15))
ACTION_OF_EVENT: dict[type[Any], Action] = {
    happened.PodAdded: Action.ADD,
    happened.PodUpdated: Action.UPDATE,
    happened.PodDeleted: Action.DELETE,
    happened.NodeAdded: Action.ADD,
    happened.NodeUpdated: Action.UPDATE,
    happened.NodeDeleted: Action.DELETE,
    happened.ObjectAdded: Action.ADD,
    happened.ObjectUpdated: Action.UPDATE,
    happened.ObjectDeleted: Action.DELETE,
}
"""Watch event type -> cluster event action."""


class TimedScheduler(Scheduler):
    """A scheduler with metrics of event handling and Permit waits."""

    def __init__(self, metrics: Metrics, *parts: Any, **more: Any) -> None:
        """parts, more: arguments of Scheduler."""
        self._metrics = metrics
        self._at_permit: list[WaitingPod] = []
        self._group_begun_s = 0.0
        super().__init__(*parts, **more)
        if self.pod_groups is not None:
            self.pod_lane.group_cycles.on_begin = self._begin_group
            self.pod_lane.group_cycles.on_group = self._observe_group

    def _begin_group(self) -> None:
        self._group_begun_s = self._metrics.stopwatch()

    def _observe_group(self, report: GroupReport) -> None:
        """Count and time a group cycle that got to its end. Differs: the algorithm and what follows
        it are timed together, in both histograms. Of several that ran together each has its share.
        """
        if not report.outcome:
            return
        metrics = self._metrics
        took_s = (metrics.stopwatch() - self._group_begun_s) / report.n_together
        labels = (("result", report.outcome), ("profile", report.profile))
        metrics.count(GROUP_ATTEMPTS, labels)
        metrics.observe(GROUP_ATTEMPT_SECONDS, took_s, labels, GROUP_BUCKETS)
        metrics.observe(GROUP_ALGORITHM_SECONDS, took_s, (), GROUP_BUCKETS)

    def handle(
        self, events: Iterable[Event], now: int, heads_max: int | None = None
    ) -> list[Effect]:
        """See `Scheduler.handle`."""
        effects = super().handle(events, now, heads_max)
        waiting = self._context.shared.waiting
        if self._at_permit or len(waiting):
            for one in self._at_permit:
                if one.verdict is not None:
                    labels = (("result", one.verdict.code.title),)
                    waited_s = (now - one.since) / SECOND
                    self._metrics.observe(PERMIT_SECONDS, waited_s, labels, PERMIT_BUCKETS)
            self._at_permit = list(waiting)
        return effects

    def _table(self) -> dict[type[Any], Callable[[Any], None]]:
        return {
            kind: self._timed(handler, kind) if kind in ACTION_OF_EVENT else handler
            for kind, handler in super()._table().items()
        }

    def _members_handler(self) -> Callable[[MembersAdded], None]:
        """Time the addition of members that come together; each has its share."""
        handler, metrics = super()._members_handler(), self._metrics
        label = ClusterEvent(UNSCHEDULABLE_POD, Action.ADD).label

        def take(event: MembersAdded) -> None:
            begun = metrics.stopwatch()
            handler(event)
            share_s = (metrics.stopwatch() - begun) / len(event.pods)
            histogram = metrics.histogram(EVENT_SECONDS, (("event", label),), EVENT_BUCKETS)
            for _ in event.pods:
                histogram.add(share_s)

        return take

    def _batch_table(self) -> dict[type[Any], Callable[[list[Any]], None]]:
        """Time events that are taken together; each has its share."""
        table = super()._batch_table()
        timed = {handler: self._timed_together(handler) for handler in table.values()}
        return {kind: timed[handler] for kind, handler in table.items()}

    def _timed_together(self, handler: Callable[[list[Any]], None]) -> Callable[[list[Any]], None]:
        metrics = self._metrics
        resource_of = {kind: _resource_of(kind) for kind in ACTION_OF_EVENT}

        def take(events: list[Any]) -> None:
            begun = metrics.stopwatch()
            handler(events)
            share_s = (metrics.stopwatch() - begun) / len(events)
            kinds = Counter((type(event), resource_of[type(event)](event)) for event in events)
            for (kind, resource), n_events in kinds.items():
                labels = (("event", ClusterEvent(resource, ACTION_OF_EVENT[kind]).label),)
                histogram = metrics.histogram(EVENT_SECONDS, labels, EVENT_BUCKETS)
                for _ in range(n_events):
                    histogram.add(share_s)

        return take

    def _timed(self, handler: Callable[[Any], None], kind: type[Any]) -> Callable[[Any], None]:
        """Time an event handler. It runs several times per pod, so histograms are cached by
        resource."""
        metrics, now, resource_of = self._metrics, self._metrics.stopwatch, _resource_of(kind)
        histograms: dict[str, Histogram] = {}

        def take(event: Any) -> None:
            begun = now()
            handler(event)
            resource = resource_of(event)
            histogram = histograms.get(resource)
            if histogram is None:
                labels = (("event", ClusterEvent(resource, ACTION_OF_EVENT[kind]).label),)
                histogram = metrics.histogram(EVENT_SECONDS, labels, EVENT_BUCKETS)
                histograms[resource] = histogram
            histogram.add(now() - begun)

        return take


def _resource_of(kind: type[Any]) -> Callable[[Any], str]:
    """Resource label of an event type, as in the original."""
    if "pod" in kind.__struct_fields__:
        return lambda event: ASSIGNED_POD if event.pod.spec.node_name else UNSCHEDULABLE_POD
    if "node" in kind.__struct_fields__:
        return lambda event: NODE
    return lambda event: _resource(type(event.value).__name__)


def _resource(kind: str) -> str:
    return RESOURCE_OF_KIND.get(kind, kind)
