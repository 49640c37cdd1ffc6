"""Event handlers: watch events applied to cache and queue.

Source: kube-scheduler v1.36, eventhandlers.go.
"""

from __future__ import annotations

from stowplan.framework.clusterevents import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    UNSCHEDULABLE_POD_ADD,
    pod_update_events,
)
from stowplan.framework.object_store import key_of
from stowplan.framework.pod_groups.pod_group_states import PodGroupState, group_key_of
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.queue import PodRecord
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.evictions import Evictions
from stowplan.scheduler.node_warnings import delete_unused_pods, warn_of_node_update
from stowplan.scheduler.pod_groups.group_changes import (
    may_wake_others,
    member_bound,
    member_deleted,
)
from stowplan.scheduler.pod_groups.member_arrivals import MembersAdded, enter_together
from stowplan.scheduler.pods.transitions import (
    BOUND,
    DELETED,
    IN_BINDING_CYCLE,
    LEFT_ALONE,
    PodEvent,
)

# Members of an enum are found slowly, and these are needed for every pod.
_UPDATED, _TERMINATING = PodEvent.UPDATED, PodEvent.TERMINATING
_BOUND, _DELETED = PodEvent.BOUND, PodEvent.DELETED


class EventHandlers:
    """Applies cluster changes to the cache and to the records of pods, and tells the lanes.

    Differs: without hints the original retries only those unschedulable pods that a new or changed
    node would admit; here all of them are retried.
    """

    def __init__(self, context: SchedulerContext, evictions: Evictions) -> None:
        self._context = context
        self._lanes = context.lanes
        self._cache = context.cache
        self._queue = context.queue
        self._evictions = evictions
        self._table = context.table
        self._records = context.table.records

    # Pods.

    def pod_updated(self, pod: Pod) -> None:
        """A pod was added or updated; a finished pod counts as deleted."""
        context = self._context
        known = context.pods
        key = pod.key
        before = known.get(key)
        if before is not None:
            if is_same_version(before, pod):
                return
            if not is_same_pod(before, pod):
                self._forget_pod(before, before)
                before = None
        is_finished = pod.is_finished
        if not is_finished:
            known[key] = pod
        for lane in self._lanes.pod_watchers:
            lane.on_event(before, pod)
        if is_finished:
            if before is not None:
                self._forget_pod(before, pod)
            return
        if context.outbox.requested_status:
            context.outbox.pod_observed(pod)
        spec, group = pod.spec, None
        if context.pod_groups is not None and spec.scheduling_group is not None:
            group = self._member_updated(pod, is_new=before is None)
        if spec.node_name:
            self._assigned_pod_updated(pod, before)
        elif before is not None:
            self._pending_pod_updated(pod, before)
        elif spec.scheduler_name in context.frameworks:
            now = context.now
            self._records[pod.metadata.uid or key] = record = PodRecord(pod, now, key)
            self._queue.enter(record, now)
            if context.gates.gang_scheduling and may_wake_others(context, record, group):
                self._queue.move(UNSCHEDULABLE_POD_ADD, None, pod, now)

    def members_added(self, added: MembersAdded) -> None:
        """Members of a group that follow each other were added."""
        if not enter_together(self._context, added.pods):
            for pod in added.pods:
                self.pod_updated(pod)

    def _member_updated(self, pod: Pod, *, is_new: bool) -> PodGroupState | None:
        """A pod that names a group was added or updated; a pending pod counts for the profiles. The
        state of the group."""
        context = self._context
        groups = context.pod_groups
        if is_new and context.gates.gang_scheduling and not group_key_of(pod):
            text = f"{pod.key} stays out of the queue: its schedulingGroup has no podGroupName"
            context.outbox.report("pod", text, is_fault=False)
        if groups is not None and (
            pod.spec.node_name or pod.spec.scheduler_name in context.frameworks
        ):
            return groups.put(pod, context.now)
        return None

    def pod_deleted(self, pod: Pod) -> None:
        """A pod was deleted. A pod with another uid under the same name is left alone."""
        before = self._context.pods.get(pod.key)
        if before is not None and before.uid == pod.uid:
            self._forget_pod(before, pod)
            if not pod.is_finished:
                return
        # Finished pods are known to sessions only.
        for lane in self._lanes.pod_watchers:
            lane.on_event(pod, None)

    def _forget_pod(self, before: Pod, last: Pod) -> None:
        """Forget a pod. before: its latest known version; last: its final version."""
        now, queue = self._context.now, self._queue
        uid = before.uid
        del self._context.pods[before.key]
        self._context.outbox.forget_status(uid)
        if not (last.is_finished and last.uid == uid):
            for lane in self._lanes.pod_watchers:
                lane.on_event(before, None)
        self._evictions.victim_terminating(uid)
        self._evictions.preemptor_gone(uid)
        nominated = queue.nominator.node_of(uid) or before.status.nominated_node_name
        record, held = self._records.get(uid), None
        if record is not None:
            held = self._table.transition(record, _DELETED, last)
        self._cache.drop_pod(uid)
        if self._context.pod_groups is not None:
            self._context.pod_groups.drop(before)
            member_deleted(self._context, before)
        if before.node_name:
            queue.move(ASSIGNED_POD_DELETE, before, None, now)
            delete_unused_pods(self._context, before.node_name)
        elif held is not None or self._lanes.is_ours(before):
            queue.nominator.drop(uid)
            if held is not None:
                queue.move(ASSIGNED_POD_DELETE, held, None, now)
            elif nominated:
                self._context.requeue_lower_priority(before)

    def _assigned_pod_updated(self, pod: Pod, before: Pod | None) -> None:
        now, queue = self._context.now, self._queue
        if before is not None and before.spec.node_name:
            self._cache.put_pod(pod)
            if pod.metadata.deletion_timestamp is not None:
                self._evictions.victim_terminating(pod.uid)
            for event in pod_update_events(before, pod):
                if queue.options.hints:
                    queue.move(event, before, pod, now)
                else:
                    queue.assigned_pod_updated(before, pod, event, now)
            return
        record = self._records.get(pod.uid)
        nominated = queue.nominator.node_of(pod.uid)
        if record is not None and record.state in IN_BINDING_CYCLE:
            self._table.transition(record, _BOUND, pod)
            is_pending = False
        else:
            is_pending = before is not None and self._lanes.is_ours(before)
        self._cache.put_pod(pod)
        if queue.options.hints:
            queue.move(ASSIGNED_POD_ADD, None, pod, now)
        else:
            queue.assigned_pod_added(pod, now)
        if is_pending:
            if record is not None:
                self._table.transition(record, _BOUND, pod)
            queue.nominator.drop(pod.uid)
            self._evictions.preemptor_gone(pod.uid)
            if nominated:
                self._context.nomination_ended(pod, nominated, pod.spec.node_name)
            member_bound(self._context, pod)

    def _pending_pod_updated(self, pod: Pod, before: Pod) -> None:
        record = self._records.get(pod.uid)
        if record is None:
            return
        event = _UPDATED
        if pod.metadata.deletion_timestamp and not before.metadata.deletion_timestamp:
            event = _TERMINATING
            self._evictions.victim_terminating(pod.uid)
        self._table.transition(record, event, (pod, before))

    # Transitions of pods that are not in a binding cycle.

    def queued_pod_updated(
        self, record: PodRecord, change: tuple[Pod, Pod], fresh: PodRecord | None = None
    ) -> None:
        """A pod in the queue was updated. change: the new version and the one before."""
        pod, before = change
        self._queue.update(before, pod, self._context.now, fresh)
        nominated = before.status.nominated_node_name
        if nominated and nominated != pod.status.nominated_node_name:
            self._context.requeue_lower_priority(before)

    def attempted_pod_updated(self, record: PodRecord, change: tuple[Pod, Pod]) -> None:
        """A pod that awaits extenders was updated; without hints no events are recorded for pods in
        flight, and the newest version is requeued."""
        if self._queue.options.hints:
            self.queued_pod_updated(record, change)

    def skipped_pod_updated(self, record: PodRecord, change: tuple[Pod, Pod]) -> None:
        """A pod that is being deleted was updated after its attempt was skipped: it is queued as a
        new one."""
        pod = change[0]
        fresh = PodRecord(pod, self._context.now, record.key)
        self._records[pod.uid] = fresh
        self.queued_pod_updated(record, change, fresh)

    def queued_pod_bound(self, record: PodRecord, pod: Pod) -> None:
        """Another client bound a pod that is in the queue."""
        self._queue.delete(pod)
        self._table.drop(pod.uid, BOUND)

    def queued_pod_deleted(self, record: PodRecord, pod: Pod) -> None:
        """A pod in the queue was deleted."""
        self._queue.delete(pod)
        self._table.drop(pod.uid, DELETED)

    def queued_pod_left_alone(self, record: PodRecord, _: object) -> None:
        """No lane has the pod's scheduler name any more."""
        self._queue.delete(record.pod)
        self._table.drop(record.uid, LEFT_ALONE)

    # Nodes and other objects.

    def node_updated(self, node: Node) -> None:
        """A node was added or updated."""
        before = self._cache.put_node(node)
        if before is not None and before is not node:
            warn_of_node_update(self._context, before, node)
            delete_unused_pods(self._context, node.name)
        self._notify_lanes(before, node)

    def node_deleted(self, node: Node) -> None:
        """A node was deleted; its pods stay known until the watch deletes them."""
        self._cache.drop_node(node.name)
        self._notify_lanes(node, None)

    def object_updated(self, value: Object) -> None:
        """Any other object that plugins read was added or updated."""
        before = self._cache.object_store.observed(type(value), key_of(value))
        if before is not None and is_same_version(before, value):
            # Changes assumed for it stay in force.
            return
        self._cache.object_store.put(value)
        self._notify_lanes(before, value)

    def object_deleted(self, value: Object) -> None:
        """Any other object that plugins read was deleted."""
        key = key_of(value)
        if self._cache.object_store.find(type(value), key) is not None:
            self._cache.object_store.drop(type(value), key)
            self._notify_lanes(value, None)

    def _notify_lanes(self, before: Object | None, after: Object | None) -> None:
        for lane in self._lanes:
            lane.on_event(before, after)


def is_same_version(before: Object, after: Object) -> bool:
    """True if both are the same version, as sent again when a watch restarts."""
    version = after.metadata.resource_version
    return after is before or (
        version != ""
        and before.metadata.resource_version == version
        and before.metadata.uid == after.metadata.uid
    )


def is_same_pod(before: Pod, after: Pod) -> bool:
    """True if both are the same pod. A pod never leaves its node, so a version on another node,
    with the same uid, is another pod (for example after an etcd restore)."""
    return before.uid == after.uid and before.spec.node_name in ("", after.spec.node_name)
