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
    node_changes,
    pod_changes,
)
from stowplan.framework.world import key_of
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.scheduler.binding import Bindings
from stowplan.scheduler.context import Context
from stowplan.scheduler.evictions import Evictions


class Watching:
    """Turns what happened in the cluster into changes of cache and queue."""

    def __init__(self, context: Context, bindings: Bindings, evictions: Evictions) -> None:
        self._context = context
        self._cache = context.cache
        self._queue = context.queue
        self._bindings = bindings
        self._evictions = evictions

    # Pods.

    def pod_seen(self, pod: Pod) -> None:
        """A pod is there or has changed; one that has ended counts as gone."""
        before = self._context.known.get(pod.key)
        if before is not None and before.uid != pod.uid:
            self.pod_gone(before)
            before = None
        if pod.is_finished:
            if before is not None:
                self.pod_gone(before)
            return
        self._context.known[pod.key] = pod
        if pod.node_name:
            self._bound(pod, before)
        elif self._context.is_ours(pod):
            self._pending(pod, before)

    def pod_gone(self, pod: Pod) -> None:
        """A pod is no more."""
        before = self._context.known.pop(pod.key, None) or pod
        self._evictions.victim_gone(pod.uid)
        self._context.shared.preempting.discard(pod.uid)
        self._bindings.pod_gone(pod.uid)
        held = self._cache.drop_pod(pod.uid)
        if held is not None:
            self._queue.delete(before)
            self._queue.move(ASSIGNED_POD_DELETE, before, None, self._context.now)
            return
        if self._context.is_ours(before):
            nominated = self._queue.nominator.node_of(before.uid)
            self._queue.delete(before)
            if nominated:
                self._room_for_lower(before)

    def _bound(self, pod: Pod, before: Pod | None) -> None:
        now = self._context.now
        self._bindings.confirmed(pod)
        was_bound = before is not None and bool(before.node_name)
        self._cache.put_pod(pod)
        if not was_bound or before is None:
            if before is not None and self._context.is_ours(before):
                self._queue.delete(before)
            self._queue.move(ASSIGNED_POD_ADD, None, pod, now)
            return
        if pod.metadata.deletion_timestamp is not None:
            self._evictions.victim_leaving(pod.uid)
        for event in pod_changes(before, pod):
            self._queue.move(event, before, pod, now)

    def _pending(self, pod: Pod, before: Pod | None) -> None:
        now = self._context.now
        leaving = pod.metadata.deletion_timestamp is not None
        if self._cache.is_assumed(pod.uid):
            if leaving and (before is None or before.metadata.deletion_timestamp is None):
                self._bindings.pod_leaving(pod)
            return
        if before is None:
            self._queue.add(pod, now)
            return
        version = pod.metadata.resource_version
        if version and before.metadata.resource_version == version:
            return
        self._queue.update(before, pod, now)
        nominated = before.status.nominated_node_name
        if nominated and nominated != pod.status.nominated_node_name:
            self._room_for_lower(before)

    def _room_for_lower(self, pod: Pod) -> None:
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

    def node_seen(self, node: Node) -> None:
        """A node is there or has changed."""
        now = self._context.now
        before = self._cache.put_node(node)
        if before is None:
            self._queue.move(ClusterEvent(NODE, Action.ADD), None, node, now)
            return
        for event in node_changes(before, node):
            self._queue.move(event, before, node, now)

    def node_gone(self, node: Node) -> None:
        """A node is no more; its pods stay known until the watch drops them."""
        self._queue.move(ClusterEvent(NODE, Action.DELETE), node, None, self._context.now)
        self._cache.drop_node(node.name)

    def object_seen(self, value: Object) -> None:
        """Something else that rules read is there or has changed."""
        before = self._cache.world.find(type(value), key_of(value))
        self._cache.world.put(value)
        action = Action.ADD if before is None else Action.UPDATE
        self._tell(value, action, before, value)

    def object_gone(self, value: Object) -> None:
        """Something else that rules read is no more."""
        key = key_of(value)
        if self._cache.world.find(type(value), key) is not None:
            self._cache.world.drop(type(value), key)
            self._tell(value, Action.DELETE, value, None)

    def _tell(
        self, value: Object, action: Action, before: Object | None, after: Object | None
    ) -> None:
        resource = RESOURCE_OF_KIND.get(type(value).__name__)
        if resource is not None:
            event = ClusterEvent(resource, action)
            self._queue.move(event, before, after, self._context.now)
