"""Node lifecycle controller: detects missing heartbeats, sets conditions and taints.

A heartbeat is a renewed lease or a status with a new `lastHeartbeatTime`.

Taints with NoSchedule are set at once. A taint with NoExecute waits for its turn in the queue of
the node's zone (`zone_disruption`), so that a zone that fails does not lose all pods at once.

Differs: syncs are due when a heartbeat is missed, instead of every 5 seconds, and states of zones
are computed when all nodes that are due have been synced.

Source: kube-controller-manager v1.36, pkg/controller/nodelifecycle.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from stowplan.apis.core.pod_lifecycle import has_kubelet_annotation
from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import find_condition
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.object_times import format_time
from stowplan.controller_runtime.resource_paths import LEASES, NODES, PODS
from stowplan.controllers.node_lifecycle.node_lifecycle_options import NodeLifecycleOptions
from stowplan.controllers.node_lifecycle.zone_disruption import (
    ClusterDisruption,
    NodeHealth,
    ZoneDisruption,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.node import zone_of_labels
from stowplan.objects.store import Store, WatchEvent

COMPONENT = "node-controller"
LEASE_NAMESPACE = "kube-node-lease"
EXCLUDE_DISRUPTION = "node.kubernetes.io/exclude-disruption"
"""Label of nodes that do not count for the state of their zone."""

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
}
_TAINT_OF_STATUS = {"False": NOT_READY, "Unknown": UNREACHABLE}
"""By the status of the Ready condition."""
_NO_SCHEDULE = frozenset({NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURES.values()})
_NO_EXECUTE = frozenset({NOT_READY, UNREACHABLE})
"""Keys of the taints with this effect that the controller sets and removes."""
_KUBELET_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class NodeLifecycleController(Controller):
    """Marks unreachable nodes, and taints nodes by their conditions."""

    name = "node-lifecycle"
    path = NODES
    observed = (LEASES, NODES)

    def __init__(
        self,
        api: Store,
        index: ObjectIndex,
        recorder: EventRecorder,
        *,
        heartbeats: bool = True,
        options: NodeLifecycleOptions | None = None,
    ) -> None:
        """heartbeats: False: only nodes that say something about their kubelet are expected to send
        them; all others are reachable."""
        super().__init__(api, index, recorder)
        self.heartbeats = heartbeats
        self.options = options or NodeLifecycleOptions()
        self.zones = ZoneDisruption(self.options)
        self._zones_changed = False
        self._known: set[str] = set()
        self._seen: dict[str, float] = {}
        self._posted: dict[str, str] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Handle a heartbeat (lease, status), a changed node, a ready pod on an unreachable
        node."""
        namespace, name = split_key(change)
        path = change.path
        if path == LEASES:
            if namespace == LEASE_NAMESPACE and change.type != "DELETED":
                self._seen[name] = self.api.now
        elif path == NODES:
            if change.type == "DELETED":
                self._seen.pop(name, None)
                self._posted.pop(name, None)
                self._known.discard(name)
                self.zones.forget_node(name)
                self._zones_changed = True
                return
            node = self.decoded(change.value) or {}
            heartbeat = _heartbeat(node)
            if name not in self._seen or self._posted.get(name) != heartbeat:
                self._seen[name] = self.api.now
                self._posted[name] = heartbeat
            if self.zones.set_node(name, self._health(node)):
                self._zones_changed = True
            self.queue.add(("", name))

    def _expects_heartbeats(self, node: Tree) -> bool:
        return self.heartbeats or has_kubelet_annotation(node)

    def _health(self, node: Tree) -> NodeHealth:
        labels = (node.get("metadata") or {}).get("labels") or {}
        status = _ready_status(node)
        is_ready = status == "True" or (status is None and not self._expects_heartbeats(node))
        return NodeHealth(zone_of_labels(labels), is_ready, EXCLUDE_DISRUPTION not in labels)

    def work_once(self) -> bool:
        """Sync the next due node; when none is, compute the states of zones, or taint a node whose
        turn it is. False if nothing is due."""
        if super().work_once():
            return True
        if self._zones_changed:
            self._update_zones()
            return True
        name = self.zones.take(self.api.now)
        if name is None:
            return False
        self._taint_no_execute(name)
        return True

    def next_at(self) -> float | None:
        """When `work_once` is due again; None: after the next change."""
        if self._zones_changed:
            return self.api.now
        times = (super().next_at(), self.zones.next_at())
        return min((at for at in times if at is not None), default=None)

    def sync(self, key: Key) -> None:
        """Check the heartbeat, then update taints and pods by the conditions."""
        name = key[1]
        node = self.api.get(NODES, "", name)
        if node is None:
            return
        expects = self._expects_heartbeats(node)
        options = self.options
        grace = options.node_monitor_grace_period_s
        if _ready_status(node) is None:
            grace = options.node_startup_grace_period_s
        due = self._seen.get(name, self.api.now) + grace
        if due > self.api.now:
            if expects:
                self.queue.add(key, due)
        elif expects:
            node = self._mark_unreachable(node)
        self._taint(node)
        if _ready_status(node) in ("False", "Unknown"):
            self._mark_pods(node)

    def _update_zones(self) -> None:
        """Compute the states of zones, and handle the loss or return of all nodes."""
        self._zones_changed = False
        disruption = self.zones.update(self.api.now)
        if disruption is ClusterDisruption.ENTERED:
            # Rather the control plane is cut off than all nodes are down: nothing is evicted.
            self._known.clear()
            for name in self._seen:
                self.queue.add(("", name))
        elif disruption is ClusterDisruption.LEFT:
            for name in self._seen:
                self._seen[name] = self.api.now

    def _mark_unreachable(self, node: Tree) -> Tree:
        """Set the kubelet's conditions to Unknown."""
        conditions = node.setdefault("status", {}).setdefault("conditions", [])
        changed = False
        now = format_time(self.api.now)
        for type_ in _KUBELET_CONDITIONS:
            old = find_condition(conditions, type_)
            if old is None:
                changed = True
                conditions.append(
                    {
                        "type": type_,
                        "status": "Unknown",
                        "lastHeartbeatTime": node["metadata"].get("creationTimestamp"),
                        "lastTransitionTime": now,
                        "reason": "NodeStatusNeverUpdated",
                        "message": "Kubelet never posted node status.",
                    }
                )
            elif old.get("status") != "Unknown":
                changed = True
                old["status"] = "Unknown"
                old["reason"] = "NodeStatusUnknown"
                old["message"] = "Kubelet stopped posting node status."
                old["lastTransitionTime"] = now
        if not changed:
            return node
        name = node["metadata"]["name"]
        text = f"Node {name} status is now: NodeNotReady"
        self.recorder.record(
            node, COMPONENT, "NodeNotReady", text, object_kind="Node", api_version="v1"
        )
        return self.api.update_status(NODES, node)

    def _taint(self, node: Tree) -> None:
        """Set the NoSchedule taints of the node's conditions. Queue it for NoExecute, or remove
        that taint when it is ready."""
        name = node["metadata"]["name"]
        status = _ready_status(node)
        # A taint that a node had before this controller knew it waits for its turn as well.
        present = _no_execute_keys(node) if name in self._known else frozenset()
        self._known.add(name)
        if status == "True":
            present = frozenset()
            self.zones.remove(name)
        elif status in _TAINT_OF_STATUS:
            key = _TAINT_OF_STATUS[status]
            if present:
                # Evictions go on as they were: only the reason is another.
                present = frozenset({key})
            else:
                self.zones.add(name)
        self._set_taints(node, _no_schedule_keys(node), present)

    def _taint_no_execute(self, name: str) -> None:
        """Taint a node whose turn it is; at another turn if it cannot be written."""
        node = self.api.get(NODES, "", name)
        status = None if node is None else _ready_status(node)
        if node is not None and status in _TAINT_OF_STATUS:
            keys = frozenset({_TAINT_OF_STATUS[status]})
            try:
                self._set_taints(node, _no_schedule_keys(node), keys)
            except ApiError as error:
                if error.code != 404:
                    return
        self.zones.remove(name)

    def _set_taints(self, node: Tree, no_schedule: Sequence[str], no_execute: Set[str]) -> None:
        """Write exactly these of the controller's taints; all other taints stay."""
        spec = node.setdefault("spec", {})
        old = spec.get("taints") or []
        wanted = [(key, "NoSchedule") for key in no_schedule]
        wanted += [(key, "NoExecute") for key in sorted(no_execute)]
        have = {(each.get("key"), each.get("effect")) for each in old}
        kept = [
            each
            for each in old
            if not _is_managed(each) or (each.get("key"), each.get("effect")) in wanted
        ]
        now = format_time(self.api.now)
        new = [
            {"key": key, "effect": effect, "timeAdded": now}
            for key, effect in wanted
            if (key, effect) not in have
        ]
        if new or len(kept) != len(old):
            spec["taints"] = [*kept, *new]
            self.api.update(NODES, node)

    def _mark_pods(self, node: Tree) -> None:
        """Mark the pods of a node that is not ready as not ready."""
        for pod in self.index.on_node(node["metadata"]["name"]):
            if not pod.ready:
                continue
            tree = self.api.get(PODS, *pod.key)
            if tree is None:
                continue
            ready = find_condition(tree["status"].get("conditions") or (), "Ready")
            if ready is not None:
                ready["status"] = "False"
                ready["lastTransitionTime"] = format_time(self.api.now)
                self.api.update_status(PODS, tree)
                self.recorder.record(
                    tree, COMPONENT, "NodeNotReady", "Node is not ready", type="Warning",
                    object_kind="Pod", api_version="v1",
                )  # fmt: skip


def _heartbeat(node: Tree) -> str:
    """Last heartbeat time of the Ready condition; "" for none."""
    ready = find_condition((node.get("status") or {}).get("conditions") or (), "Ready")
    return str((ready or {}).get("lastHeartbeatTime") or "")


def _ready_status(node: Tree) -> str | None:
    """Status of the Ready condition; None without one."""
    ready = find_condition((node.get("status") or {}).get("conditions") or (), "Ready")
    return None if ready is None else str(ready.get("status"))


def _is_managed(taint: Tree) -> bool:
    keys = {"NoSchedule": _NO_SCHEDULE, "NoExecute": _NO_EXECUTE}.get(str(taint.get("effect")))
    return keys is not None and taint.get("key") in keys


def _no_execute_keys(node: Tree) -> frozenset[str]:
    """Keys of the NoExecute taints that say that the node is not ready."""
    taints = (node.get("spec") or {}).get("taints") or ()
    found = {str(each["key"]) for each in taints if each.get("effect") == "NoExecute"}
    return frozenset(found & _NO_EXECUTE)


def _no_schedule_keys(node: Tree) -> list[str]:
    """Keys of the NoSchedule taints for the conditions and `spec.unschedulable`."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    status = {each.get("type"): each.get("status") for each in conditions}
    ready = _TAINT_OF_STATUS.get(str(status.get("Ready")))
    wanted = [] if ready is None else [ready]
    wanted += [key for type_, key in _PRESSURES.items() if status.get(type_) == "True"]
    if (node.get("spec") or {}).get("unschedulable"):
        wanted.append(UNSCHEDULABLE)
    return wanted
