"""What the watch says, taken into cache and queue.

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
    """Turns what happened in the cluster into changes of cache and queue.

    Differs: without hints the original looks at parked pods only that a new or changed node would
    admit; here all of them are tried again.
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
        """A pod is there or has changed; one that has ended counts as gone."""
        known = self._context.pods
        key = pod.key
        before = known.get(key)
        if before is not None:
            if is_same_version(before, pod):
                return
            if not is_same_pod(before, pod):
                self._gone(before, before)
                before = None
        if self._sessions is not None:
            self._sessions.pod_updated(pod, before)
        if pod.is_finished:
            if before is not None:
                self._gone(before, pod)
            return
        known[key] = pod
        if self._context.outbox.requested_status:
            self._context.outbox.pod_observed(pod)
        if pod.spec.node_name:
            self._bound(pod, before)
        elif pod.spec.scheduler_name in self._context.frameworks:
            if before is None:
                self._queue.enter(pod, key, self._context.now)
            else:
                self._pending(pod, before)
        elif before is not None and pod.uid in self._bindings:
            self._binding_pod_updated(pod, before)

    def pod_deleted(self, pod: Pod) -> None:
        """A pod is no more. What a pod of another uid under its name has become stays as it is."""
        before = self._context.pods.get(pod.key)
        if before is not None and before.uid == pod.uid:
            self._gone(before, pod)
            if not pod.is_finished:
                return
        if self._sessions is not None:
            # One that has ended is known to sessions only.
            self._sessions.pod_deleted(pod.uid)

    def _gone(self, before: Pod, last: Pod) -> None:
        """Forget a pod. before: its latest version so far; last: the one with which it ended."""
        now, queue = self._context.now, self._queue
        uid = before.uid
        del self._context.pods[before.key]
        self._context.outbox.forget_status(uid)
        if self._sessions is not None and not (last.is_finished and last.uid == uid):
            self._sessions.pod_deleted(uid)
        self._evictions.victim_terminating(uid)
        self._evictions.preemptor_gone(uid)
        self._extender_attempts.stop(uid)
        held = self._bindings.gone(last)
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
                self._requeue_lower_priority(before)

    def _bound(self, pod: Pod, before: Pod | None) -> None:
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
        was_in_binding_cycle = was_ours and self._bindings.confirmed(pod)
        self._cache.put_pod(pod)
        if queue.options.hints:
            queue.move(ASSIGNED_POD_ADD, None, pod, now)
        else:
            queue.assigned_pod_added(pod, now)
        if was_ours and not was_in_binding_cycle:
            self._extender_attempts.stop(pod.uid)
            queue.delete(pod)
            self._evictions.preemptor_gone(pod.uid)

    def _pending(self, pod: Pod, before: Pod) -> None:
        now = self._context.now
        leaving = pod.metadata.deletion_timestamp is not None
        if pod.uid in self._bindings:
            self._binding_pod_updated(pod, before)
            return
        if leaving and before.metadata.deletion_timestamp is None:
            self._evictions.victim_terminating(pod.uid)
        if pod.uid in self._extender_attempts and self._stays_away(pod, is_leaving=leaving):
            return
        self._queue.update(before, pod, now)
        nominated = before.status.nominated_node_name
        if nominated and nominated != pod.status.nominated_node_name:
            self._requeue_lower_priority(before)

    def _binding_pod_updated(self, pod: Pod, before: Pod) -> None:
        """A pod has changed that is on its way to a node."""
        leaving = pod.metadata.deletion_timestamp is not None
        if leaving and before.metadata.deletion_timestamp is None:
            self._evictions.victim_terminating(pod.uid)
            self._bindings.leaving(pod)

    def _stays_away(self, pod: Pod, *, is_leaving: bool) -> bool:
        """True when a change of a pod whose attempt waits is no matter for the queue."""
        if is_leaving:
            self._extender_attempts.stop(pod.uid)
            self._context.record_skip_deleting(pod)
            return True
        # Without hints nothing is kept for pods in flight; it comes back in its newest version.
        return not self._queue.options.hints

    def _requeue_lower_priority(self, pod: Pod) -> None:
        """A nominated pod counted as placed for those of its priority and below; no more."""
        priority = pod.priority
        self._queue.move(
            ASSIGNED_POD_DELETE,
            pod,
            None,
            self._context.now,
            lambda other: other.priority <= priority,
        )

    # Nodes and other objects.

    def node_updated(self, node: Node) -> None:
        """A node is there or has changed."""
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
        """A node is no more; its pods stay known until the watch drops them."""
        self._queue.move(NODE_DELETE, node, None, self._context.now)
        self._cache.drop_node(node.name)
        if self._sessions is not None:
            self._sessions.node_deleted(node.name)

    def object_updated(self, value: Object) -> None:
        """Something else that rules read is there or has changed."""
        before = self._cache.object_store.observed(type(value), key_of(value))
        if before is not None and is_same_version(before, value):
            # What is assumed of it holds as well.
            return
        self._cache.object_store.put(value)
        if self._sessions is not None:
            self._sessions.object_updated(value, before)
        action = Action.ADD if before is None else Action.UPDATE
        self._tell(value, action, before, value)

    def object_deleted(self, value: Object) -> None:
        """Something else that rules read is no more."""
        key = key_of(value)
        if self._cache.object_store.find(type(value), key) is not None:
            self._cache.object_store.drop(type(value), key)
            if self._sessions is not None:
                self._sessions.object_deleted(value)
            self._tell(value, Action.DELETE, value, None)

    def _tell(
        self, value: Object, action: Action, before: Object | None, after: Object | None
    ) -> None:
        resource = RESOURCE_OF_KIND.get(type(value).__name__)
        if resource is not None:
            event = ClusterEvent(resource, action)
            self._queue.move(event, before, after, self._context.now)


def is_same_version(before: Object, after: Object) -> bool:
    """True when the watch names again what it named before, as it does when it starts over."""
    version = after.metadata.resource_version
    return after is before or (
        version != ""
        and before.metadata.resource_version == version
        and before.metadata.uid == after.metadata.uid
    )


def is_same_pod(before: Pod, after: Pod) -> bool:
    """True when both are one pod. A pod never leaves the node that it is bound to, so a version
    that says so is of another life: its etcd was restored, say."""
    return before.uid == after.uid and before.spec.node_name in ("", after.spec.node_name)
