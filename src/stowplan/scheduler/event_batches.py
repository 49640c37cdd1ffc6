"""Event batches: pods that are added, or deleted, one after the other.

What happens is what happens for each of them in turn. What is the same for all of them is looked
at once, and pods for which nothing else happens enter the queue, or leave their nodes, together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stowplan.framework.clusterevents import ASSIGNED_POD_DELETE
from stowplan.messages.events import PodAdded, PodDeleted
from stowplan.objects.pod import FINISHED_PHASES, Pod, PodSpec, PodStatus
from stowplan.objects.pod_templates import kept_outline
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

    def take(self, events: Sequence[PodAdded | PodDeleted]) -> None:
        """Pods were added and deleted in this order.

        A new pod that only enters the active queue and a pod that only leaves its node do not
        concern each other, so either are taken together.
        """
        context, queue = self._context, self._context.queue
        known, records, now = context.pods, context.table.records, context.now
        frameworks, gates = context.frameworks, queue.gates
        row_of_pod, is_awaited = context.cache.nodes.row_of_pod, self._evictions.is_awaited
        requested_status = context.outbox.requested_status
        fresh: list[PodRecord] = []
        leaving: dict[str, Pod] = {}
        # None where it has to be found out.
        only_enters: bool | None = None
        only_leaves: bool | None = None
        # Of the pod that entered last: another of its template that looks the same does so, too,
        # and one whose spec differs in the resources of containers alone, if gates go by outlines.
        latest_spec: PodSpec | None = None
        latest_status: PodStatus | None = None
        outline: bytes | None = None
        for event in events:
            pod = event.pod
            meta, spec, status = pod.metadata, pod.spec, pod.status
            key = f"{meta.namespace or 'default'}/{meta.name}"
            uid = meta.uid or key
            if uid in leaving or (status is not latest_status and status.phase in FINISHED_PHASES):
                pass
            elif type(event) is PodAdded:
                is_alike = status is latest_status and (
                    spec is latest_spec or (outline is not None and kept_outline(spec) is outline)
                )
                if key not in known and (is_alike or (
                    not spec.node_name and spec.scheduler_name in frameworks
                    and not status.nominated_node_name and not gates.concern(pod)
                )):  # fmt: skip
                    if only_enters is None:
                        only_enters = self._new_pods_only_enter()
                    if only_enters:
                        known[key] = pod
                        records[uid] = record = PodRecord(pod, now, key)
                        fresh.append(record)
                        latest_spec, latest_status = spec, status
                        if not is_alike:
                            outline = gates.shared_outline
                        continue
            else:
                before = known.get(key)
                if (
                    before is not None
                    and (before.metadata.uid or key) == uid
                    and before.spec.node_name
                    and uid not in records
                    and row_of_pod(uid) >= 0
                    and uid not in requested_status
                    and not is_awaited(uid)
                ):
                    if only_leaves is None:
                        only_leaves = self._deleted_pods_only_leave()
                    if only_leaves:
                        del known[key]
                        leaving[uid] = before
                        continue
            self._settle(fresh, leaving)
            self._take_alone(event)
            only_enters = only_leaves = None
            latest_spec = latest_status = outline = None
        self._settle(fresh, leaving)

    def _take_alone(self, event: PodAdded | PodDeleted) -> None:
        if type(event) is PodAdded:
            self._handlers.pod_updated(event.pod)
        else:
            self._handlers.pod_deleted(event.pod)
        self._apply_plugin_requests()

    def _settle(self, fresh: list[PodRecord], leaving: dict[str, Pod]) -> None:
        """Have the pods so far enter the queue and leave their nodes; empties both."""
        context = self._context
        if fresh:
            context.queue.enter_all(fresh, context.now)
            fresh.clear()
        if leaving:
            context.cache.drop_pods([*leaving])
            # No pod is moved by it, so that it is the same for one of them and for all.
            last = next(reversed(leaving.values()))
            context.queue.move(ASSIGNED_POD_DELETE, last, None, context.now)
            leaving.clear()

    def _new_pods_only_enter(self) -> bool:
        """True where nothing but the queue takes notice of a new pod that waits for a node."""
        context = self._context
        return not (
            context.pod_groups is not None
            or context.lanes.pod_watchers
            or context.outbox.requested_status
            or len(context.queue.nominator)
        )

    def _deleted_pods_only_leave(self) -> bool:
        """True where the deletion of a pod on a node, of which no preemptor waits for its end,
        does nothing but free its resources."""
        context, queue = self._context, self._context.queue
        frameworks = (*context.frameworks.values(), *context.session_frameworks.values())
        return not (
            context.pod_groups is not None
            or context.lanes.pod_watchers
            or any(one.unused_pods_calls for one in frameworks)
            or not queue.options.hints
            or len(queue.in_flight)
            or queue.unschedulable_index is not None
            or queue.unschedulable_pods.has_any_open(queue.hints.listeners(ASSIGNED_POD_DELETE))
        )
