"""Node lifecycle controller: detects missing heartbeats, sets conditions and taints.

A heartbeat is a renewed lease or a status with a new `lastHeartbeatTime`.

Differs: the original limits how many nodes of a zone are tainted NoExecute at once, and tainting
while much of a zone is down; here each node is tainted when its heartbeat is missed, and syncs are
due at that moment instead of every 5 seconds.

Source: kube-controller-manager v1.36, pkg/controller/nodelifecycle.
"""

from __future__ import annotations

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import find_condition
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.object_times import format_time
from stowplan.controller_runtime.resource_paths import LEASES, NODES, PODS
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store, WatchEvent

COMPONENT = "node-controller"
LEASE_NAMESPACE = "kube-node-lease"
GRACE_SECONDS = 50.0
STARTUP_GRACE_SECONDS = 60.0

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
}
_MANAGED_TAINTS = {NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURES.values()}
_KUBELET_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class NodeLifecycleController(Controller):
    """Marks unreachable nodes, and taints nodes by their conditions."""

    name = "node-lifecycle"
    path = NODES

    def __init__(
        self,
        api: Store,
        index: ObjectIndex,
        recorder: EventRecorder,
        *,
        expects_heartbeats: bool = True,
    ) -> None:
        """expects_heartbeats: False: nodes are reachable without heartbeats."""
        super().__init__(api, index, recorder)
        self.expects_heartbeats = expects_heartbeats
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
                return
            heartbeat = _heartbeat(self.decoded(change.value) or {})
            if name not in self._seen or self._posted.get(name) != heartbeat:
                self._seen[name] = self.api.now
                self._posted[name] = heartbeat
            self.queue.add(("", name))

    def sync(self, key: Key) -> None:
        """Check the heartbeat, then update taints and pods by the conditions."""
        name = key[1]
        node = self.api.get(NODES, "", name)
        if node is None:
            return
        ready = find_condition((node.get("status") or {}).get("conditions") or (), "Ready")
        grace = GRACE_SECONDS if ready is not None else STARTUP_GRACE_SECONDS
        due = self._seen.get(name, self.api.now) + grace
        if due > self.api.now:
            self.queue.add(key, due)
        elif self.expects_heartbeats:
            node = self._mark_unreachable(node)
        self._taint(node)
        ready = find_condition((node.get("status") or {}).get("conditions") or (), "Ready")
        if ready is not None and ready.get("status") != "True":
            self._mark_pods(node)

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
        """Set exactly the taints of the node's conditions; keep all other taints."""
        spec = node.setdefault("spec", {})
        old = spec.get("taints") or []
        wanted = _taints_of(node)
        have = {(each.get("key"), each.get("effect")) for each in old}
        kept = [
            each
            for each in old
            if each.get("key") not in _MANAGED_TAINTS
            or each.get("effect") == "PreferNoSchedule"
            or (each.get("key"), each.get("effect")) in wanted
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


def _taints_of(node: Tree) -> list[tuple[str, str]]:
    """Keys and effects of the taints for the conditions and `spec.unschedulable`."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    status = {each.get("type"): each.get("status") for each in conditions}
    wanted = []
    if status.get("Ready") in ("False", "Unknown"):
        key = NOT_READY if status["Ready"] == "False" else UNREACHABLE
        wanted += [(key, "NoSchedule"), (key, "NoExecute")]
    wanted += [
        (key, "NoSchedule") for type_, key in _PRESSURES.items() if status.get(type_) == "True"
    ]
    if (node.get("spec") or {}).get("unschedulable"):
        wanted.append((UNSCHEDULABLE, "NoSchedule"))
    return wanted
