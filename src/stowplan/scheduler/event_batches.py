"""Event batches: pods that are added, or deleted, one after the other.

What happens is what happens for each of them in turn. What is the same for all of them is looked
at once, and pods for which nothing else happens enter the queue, or leave their nodes, together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stowplan.framework.clusterevents import ASSIGNED_POD_DELETE
from stowplan.messages.events import PodAdded, PodDeleted
from stowplan.objects.pod import FINISHED_PHASES, Pod
from stowplan.queue import PodRecord
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.event_handlers import EventHandlers
from stowplan.scheduler.evictions import Evictions


class EventBatches:
    """Hands pods to the handlers of single events, but for those that it can take together."""

    def __init__(
        self,
        context: SchedulerContext,
        handlers: EventHandlers,
        evictions: Evictions,
        apply_plugin_requests: Callable[[], None],
    ) -> None:
        """apply_plugin_requests: called after each pod for which a plugin may be called."""
        self._context = context
        self._handlers = handlers
        self._evictions = evictions
        self._apply_plugin_requests = apply_plugin_requests

    def pods_added(self, events: Sequence[PodAdded]) -> None:
        """Pods were added one after the other."""
        context, queue = self._context, self._context.queue
        known, records, now = context.pods, context.table.records, context.now
        frameworks, may_be_gated = context.frameworks, queue.gates.concern
        has_others = self._has_others()
        fresh: list[PodRecord] = []
        for event in events:
            pod = event.pod
            meta, spec, status = pod.metadata, pod.spec, pod.status
            key = f"{meta.namespace or 'default'}/{meta.name}"
            if (
                has_others
                or key in known
                or spec.node_name
                or spec.scheduler_name not in frameworks
                or status.nominated_node_name
                or status.phase in FINISHED_PHASES
                or may_be_gated(pod)
            ):
                if fresh:
                    queue.enter_all(fresh, now)
                    fresh = []
                self._handlers.pod_updated(pod)
                self._apply_plugin_requests()
                has_others = self._has_others()
                continue
            known[key] = pod
            records[meta.uid or key] = record = PodRecord(pod, now, key)
            fresh.append(record)
        if fresh:
            queue.enter_all(fresh, now)

    def _has_others(self) -> bool:
        """True where more than the queue may take notice of a new pod that waits for a node."""
        context = self._context
        return (
            context.pod_groups is not None
            or bool(context.lanes.pod_watchers)
            or bool(context.outbox.requested_status)
            or len(context.queue.nominator) > 0
        )

    def pods_deleted(self, events: Sequence[PodDeleted]) -> None:
        """Pods were deleted one after the other."""
        known, records = self._context.pods, self._context.table.records
        rows = self._context.cache.nodes
        is_awaited = self._is_awaited()
        leaving: dict[str, Pod] = {}
        for event in events:
            pod = event.pod
            meta = pod.metadata
            key = f"{meta.namespace or 'default'}/{meta.name}"
            uid, before = meta.uid or key, known.get(key)
            if (
                is_awaited
                or before is None
                or before.uid != uid
                or not before.spec.node_name
                or pod.status.phase in FINISHED_PHASES
                or uid in records
                or uid in leaving
                or rows.row_of_pod(uid) < 0
            ):
                self._leave(leaving)
                leaving = {}
                self._handlers.pod_deleted(pod)
                self._apply_plugin_requests()
                is_awaited = self._is_awaited()
                continue
            del known[key]
            leaving[uid] = before
        self._leave(leaving)

    def _is_awaited(self) -> bool:
        """True where the deletion of a pod on a node may do more than free resources."""
        context, queue = self._context, self._context.queue
        frameworks = (*context.frameworks.values(), *context.session_frameworks.values())
        return (
            context.pod_groups is not None
            or bool(context.lanes.pod_watchers)
            or bool(context.outbox.requested_status)
            or self._evictions.are_awaited
            or any(one.unused_pods_calls for one in frameworks)
            or not queue.options.hints
            or len(queue.in_flight) > 0
            or queue.unschedulable_index is not None
            or queue.unschedulable_pods.has_any(queue.hints.listeners(ASSIGNED_POD_DELETE))
        )

    def _leave(self, leaving: dict[str, Pod]) -> None:
        """Take deleted pods off their nodes. No pod in the queue waits for that."""
        if leaving:
            self._context.cache.drop_pods([*leaving])
            last = next(reversed(leaving.values()))
            self._context.queue.move(ASSIGNED_POD_DELETE, last, None, self._context.now)
