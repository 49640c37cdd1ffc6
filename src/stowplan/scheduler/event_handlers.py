"""Event handlers: watch events applied to cache and queue.

Source: kube-scheduler v1.36, eventhandlers.go.
"""

from __future__ import annotations

from stowplan.framework.clusterevents import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE,
    RESOURCE_OF_KIND,
    Action,
    ClusterEvent,
    node_update_events,
    pod_update_events,
)
from stowplan.framework.object_store import key_of
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.evictions import Evictions
from stowplan.scheduler.extenders.extender_attempts import ExtenderAttempts
from stowplan.scheduler.session_lane import SessionLane

NODE_ADD = ClusterEvent(NODE, Action.ADD)
NODE_DELETE = ClusterEvent(NODE, Action.DELETE)


class EventHandlers:
    """Applies cluster changes to the cache and notifies queue, binding cycles and session lane.

    Differs: without hints the original retries only those unschedulable pods that a new or changed
    node would admit; here all of them are retried.
    """

    def __init__(
        self,
        context: SchedulerContext,
        bindings: BindingCycles,
        evictions: Evictions,
        extender_attempts: ExtenderAttempts,
        sessions: SessionLane | None = None,
    ) -> None:
        self._sessions = sessions
        self._context = context
        self._cache = context.cache
        self._queue = context.queue
        self._bindings = bindings
        self._evictions = evictions
        self._extender_attempts = extender_attempts

    # Pods.

    def pod_updated(self, pod: Pod) -> None:
        """A pod was added or updated; a finished pod counts as deleted."""
        known = self._context.pods
        key = pod.key
        before = known.get(key)
        if before is not None:
            if is_same_version(before, pod):
                return
            if not is_same_pod(before, pod):
                self._forget_pod(before, before)
                before = None
        if self._sessions is not None:
            self._sessions.pod_updated(pod, before)
        if pod.is_finished:
            if before is not None:
                self._forget_pod(before, pod)
            return
        known[key] = pod
        if self._context.outbox.requested_status:
            self._context.outbox.pod_observed(pod)
        if pod.spec.node_name:
            self._assigned_pod_updated(pod, before)
        elif pod.spec.scheduler_name in self._context.frameworks:
            if before is None:
                self._queue.enter(pod, key, self._context.now)
            else:
                self._pending_pod_updated(pod, before)
        elif before is not None and pod.uid in self._bindings:
            self._binding_pod_updated(pod, before)

    def pod_deleted(self, pod: Pod) -> None:
        """A pod was deleted. A pod with another uid under the same name is left alone."""
        before = self._context.pods.get(pod.key)
        if before is not None and before.uid == pod.uid:
            self._forget_pod(before, pod)
            if not pod.is_finished:
                return
        if self._sessions is not None:
            # Finished pods are known to sessions only.
            self._sessions.pod_deleted(pod.uid)

    def _forget_pod(self, before: Pod, last: Pod) -> None:
        """Forget a pod. before: its latest known version; last: its final version."""
        now, queue = self._context.now, self._queue
        uid = before.uid
        del self._context.pods[before.key]
        self._context.outbox.forget_status(uid)
        if self._sessions is not None and not (last.is_finished and last.uid == uid):
            self._sessions.pod_deleted(uid)
        self._evictions.victim_terminating(uid)
        self._evictions.preemptor_gone(uid)
        self._extender_attempts.stop(uid)
        held = self._bindings.pod_deleted(last)
        self._cache.drop_pod(uid)
        if before.node_name:
            queue.move(ASSIGNED_POD_DELETE, before, None, now)
            return
        nominated = queue.nominator.node_of(uid) or before.status.nominated_node_name
        if self._context.is_ours(before):
            queue.delete(before)
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
        was_ours = before is not None and self._context.is_ours(before)
        was_in_binding_cycle = was_ours and self._bindings.pod_bound(pod)
        self._cache.put_pod(pod)
        if queue.options.hints:
            queue.move(ASSIGNED_POD_ADD, None, pod, now)
        else:
            queue.assigned_pod_added(pod, now)
        if was_ours and not was_in_binding_cycle:
            self._extender_attempts.stop(pod.uid)
            queue.delete(pod)
            self._evictions.preemptor_gone(pod.uid)

    def _pending_pod_updated(self, pod: Pod, before: Pod) -> None:
        now = self._context.now
        leaving = pod.metadata.deletion_timestamp is not None
        if pod.uid in self._bindings:
            self._binding_pod_updated(pod, before)
            return
        if leaving and before.metadata.deletion_timestamp is None:
            self._evictions.victim_terminating(pod.uid)
        if pod.uid in self._extender_attempts and self._skips_queue_update(pod, is_leaving=leaving):
            return
        self._queue.update(before, pod, now)
        nominated = before.status.nominated_node_name
        if nominated and nominated != pod.status.nominated_node_name:
            self._context.requeue_lower_priority(before)

    def _binding_pod_updated(self, pod: Pod, before: Pod) -> None:
        """A pod in a binding cycle was updated."""
        leaving = pod.metadata.deletion_timestamp is not None
        if leaving and before.metadata.deletion_timestamp is None:
            self._evictions.victim_terminating(pod.uid)
            self._bindings.pod_terminating(pod)

    def _skips_queue_update(self, pod: Pod, *, is_leaving: bool) -> bool:
        """True if an update of a pod that awaits extenders needs no change in the queue."""
        if is_leaving:
            self._extender_attempts.stop(pod.uid)
            self._context.record_skip_deleting(pod)
            return True
        # Without hints no events are recorded for pods in flight; the newest version is requeued.
        return not self._queue.options.hints

    # Nodes and other objects.

    def node_updated(self, node: Node) -> None:
        """A node was added or updated."""
        now = self._context.now
        before = self._cache.put_node(node)
        if self._sessions is not None:
            self._sessions.node_updated(node, before)
        if before is None:
            self._queue.move(NODE_ADD, None, node, now)
            return
        for event in node_update_events(before, node):
            self._queue.move(event, before, node, now)

    def node_deleted(self, node: Node) -> None:
        """A node was deleted; its pods stay known until the watch deletes them."""
        self._queue.move(NODE_DELETE, node, None, self._context.now)
        self._cache.drop_node(node.name)
        if self._sessions is not None:
            self._sessions.node_deleted(node.name)

    def object_updated(self, value: Object) -> None:
        """Any other object that plugins read was added or updated."""
        before = self._cache.object_store.observed(type(value), key_of(value))
        if before is not None and is_same_version(before, value):
            # Changes assumed for it stay in force.
            return
        self._cache.object_store.put(value)
        if self._sessions is not None:
            self._sessions.object_updated(value, before)
        action = Action.ADD if before is None else Action.UPDATE
        self._move(value, action, before, value)

    def object_deleted(self, value: Object) -> None:
        """Any other object that plugins read was deleted."""
        key = key_of(value)
        if self._cache.object_store.find(type(value), key) is not None:
            self._cache.object_store.drop(type(value), key)
            if self._sessions is not None:
                self._sessions.object_deleted(value)
            self._move(value, Action.DELETE, value, None)

    def _move(
        self, value: Object, action: Action, before: Object | None, after: Object | None
    ) -> None:
        resource = RESOURCE_OF_KIND.get(type(value).__name__)
        if resource is not None:
            event = ClusterEvent(resource, action)
            self._queue.move(event, before, after, self._context.now)


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
