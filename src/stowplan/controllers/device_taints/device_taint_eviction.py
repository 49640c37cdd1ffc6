"""Device taint eviction controller: deletes pods whose claims do not tolerate a NoExecute taint of
one of their devices, and reports on DeviceTaintRules.

Differs: a pod that uses a device by an extended resource is left alone by the original's controller
too; pods of a PodGroup that has a claim are left alone here (DRAWorkloadResourceClaims).

Source: kube-controller-manager v1.36, pkg/controller/devicetainteviction.
"""

from __future__ import annotations

from stowplan.apis.machinery.timestamps import format_time, parse_time
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import set_condition
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import (
    DEVICE_TAINT_RULES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from stowplan.controllers.device_taints.device_taint_index import (
    NO_EXECUTE,
    DeviceEviction,
    DeviceTaintIndex,
    TaintRule,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions, Store, WatchEvent

COMPONENT = "device-taint-eviction"
RULE_STATUS_SECONDS = 10.0
"""Least time between two reports on a rule while pods are evicted."""
_IN_PROGRESS = "EvictionInProgress"
_POD, _RULE = "pod:", "rule:"


class DeviceTaintEvictionController(Controller):
    """Keys: ("pod:NAMESPACE", name) and ("rule:", name)."""

    name = "device-taint-eviction"

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._devices = DeviceTaintIndex()
        # Pods that wait for the end of their toleration.
        self._waiting: dict[Key, None] = {}
        self._n_evicted: dict[str, int] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Follow slices, rules and claims; queue the pods that a change concerns."""
        path, key = change.path, split_key(change)
        value = None if change.type == "DELETED" else change.value
        if path == RESOURCE_CLAIMS:
            self._queue_pods(self._devices.put_claim(key, value))
        elif path == RESOURCE_SLICES:
            self._queue_pods_of(self._devices.put_slice(key[1], value))
        elif path == DEVICE_TAINT_RULES:
            before_it = self._devices.rules.get(key[1])
            claims = self._devices.put_rule(key[1], value)
            if value is None:
                self._n_evicted.pop(key[1], None)
            elif self._devices.rules[key[1]] != before_it:
                # The report on what begins comes before its first eviction.
                self.queue.add((_RULE, key[1]))
            self._queue_pods_of(claims)
        elif path == PODS and (key in self._waiting or self._is_newly_bound(key, before)):
            self._queue_pods([key])

    def _is_newly_bound(self, key: Key, before: PodFacts | None) -> bool:
        """True for a pod that was just bound, if it might have a claim on a tainted device."""
        now = self.index.pods.get(key)
        return (
            bool(self._devices.claims)
            and now is not None
            and bool(now.node)
            and (before is None or not before.node)
        )

    def _queue_pods(self, pods: list[Key]) -> None:
        for key in pods:
            self.queue.add((_POD + key[0], key[1]))

    def _queue_pods_of(self, claims: list[Key]) -> None:
        for claim in claims:
            self._queue_pods(self._devices.pods_of(claim))

    def object_of(self, key: Key) -> Tree | None:
        """A pod or a rule."""
        kind, _, namespace = key[0].partition(":")
        return self.api.get(PODS if kind == "pod" else DEVICE_TAINT_RULES, namespace, key[1])

    def sync(self, key: Key) -> None:
        """Delete a pod or schedule its deletion, or report on a rule."""
        found = self.object_of(key)
        if key[0] == _RULE:
            rule = self._devices.rules.get(key[1])
            if found is not None and rule is not None:
                self._sync_rule(found, rule)
            return
        pod_key = (key[0].removeprefix(_POD), key[1])
        facts = self.index.pods.get(pod_key)
        if found is None or facts is None or facts.deleting:
            self._waiting.pop(pod_key, None)
            return
        self._sync_pod(found, pod_key)

    # Pods.

    def _sync_pod(self, pod: Tree, key: Key) -> None:
        eviction = self._eviction(pod, self._devices)
        if eviction is None:
            if key in self._waiting:
                del self._waiting[key]
                self._record(pod, "Cancelling deletion")
            return
        if eviction.at > self.api.now:
            self._waiting[key] = None
            self.queue.add((_POD + key[0], key[1]), eviction.at)
        else:
            self._evict(pod, key)
            self._waiting.pop(key, None)
            for rule in eviction.rules:
                self._n_evicted[rule] = self._n_evicted.get(rule, 0) + 1
        for rule in eviction.rules:
            self.queue.add((_RULE, rule), self.api.now + RULE_STATUS_SECONDS)

    def _eviction(self, pod: Tree, devices: DeviceTaintIndex) -> DeviceEviction | None:
        """When a pod has to go because of the claims that it names."""
        if not pod["spec"].get("nodeName"):
            return None
        meta, status = pod["metadata"], pod.get("status") or {}
        made = {
            one["name"]: one.get("resourceClaimName")
            for one in status.get("resourceClaimStatuses") or ()
        }
        names = [
            one.get("resourceClaimName") or made.get(one["name"])
            for one in pod["spec"].get("resourceClaims") or ()
        ]
        claims = [(meta["namespace"], name) for name in names if name]
        return devices.eviction(claims, meta["uid"])

    def _evict(self, pod: Tree, key: Key) -> None:
        self._record(pod, "Marking for deletion")
        entry = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByDeviceTaintManager",
            "message": "Device Taint manager: deleting due to NoExecute taint",
        }
        conditions = pod.setdefault("status", {}).setdefault("conditions", [])
        if set_condition(conditions, entry, self.api.now):
            self.api.update_status(PODS, pod)
        self.api.delete(PODS, *key, DeleteOptions(uid=pod["metadata"]["uid"]))

    def _record(self, pod: Tree, message: str) -> None:
        self.recorder.record(
            pod, COMPONENT, "DeviceTaintManagerEviction", message,
            object_kind="Pod", api_version="v1",
        )  # fmt: skip

    # Rules.

    def _sync_rule(self, found: Tree, rule: TaintRule) -> None:
        """Write the condition EvictionInProgress, at most every ten seconds."""
        meta = found["metadata"]
        conditions = (found.get("status") or {}).get("conditions") or []
        before = next((one for one in conditions if one["type"] == _IN_PROGRESS), None)
        generation = meta.get("generation", 0)
        if before is not None and before.get("observedGeneration") == generation:
            due = parse_time(before["lastTransitionTime"]) + RULE_STATUS_SECONDS
            if due > self.api.now:
                self.queue.add((_RULE, meta["name"]), due)
                return
        status, reason, message = self._progress(meta["name"], rule)
        now = {
            "type": _IN_PROGRESS,
            "status": status,
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
        }
        if before is not None and {**before, **now} == before:
            return
        others = [one for one in conditions if one["type"] != _IN_PROGRESS]
        now["lastTransitionTime"] = format_time(self.api.now)
        found["status"] = {"conditions": [*others, now]}
        self.api.update_status(DEVICE_TAINT_RULES, found)

    def _progress(self, name: str, rule: TaintRule) -> tuple[str, str, str]:
        """Status, reason and message of the condition."""
        effect, n_evicted = rule.spec.taint.effect, self._n_evicted.get(name, 0)
        status, parts = "False", []
        if effect == NO_EXECUTE:
            n_pods, n_namespaces = self._pending_pods(name)
            if n_pods:
                status, reason = "True", "PodsPendingEviction"
                needs = "pod needs" if n_pods == 1 else "pods need"
                places = _counted(n_namespaces, "namespace", "different namespaces")
                parts.append(f"{n_pods} {needs} to be evicted in {places}.")
            else:
                reason = "Completed" if n_evicted else "NotStarted"
        elif effect == "None":
            reason = "NoEffect"
            parts.append(self._without_effect(name, rule))
        else:
            reason = "OtherEffect"
            parts.append("Eviction only happens for the NoExecute effect.")
        if n_evicted:
            parts.append(
                f"{_counted(n_evicted, 'pod', 'pods')} evicted since starting the controller."
            )
        return status, reason, " ".join(parts)

    def _without_effect(self, name: str, rule: TaintRule) -> str:
        """What the rule would do with the effect NoExecute."""
        devices = self._devices
        published, allocated = devices.selected_devices(rule)
        devices.rules[name] = rule.as_evicting()
        try:
            n_pods, n_namespaces = self._pending_pods(name)
        finally:
            devices.rules[name] = rule
        return (
            f"{_counted(published, 'published device', 'published devices')} selected. "
            f"{_counted(allocated, 'allocated device', 'allocated devices')} selected. "
            f"{_counted(n_pods, 'pod', 'pods')} would be evicted in "
            f"{_counted(n_namespaces, 'namespace', 'different namespaces')} "
            "if the effect was NoExecute. This information will not be updated again. Recreate the "
            "DeviceTaintRule to trigger an update."
        )

    def _pending_pods(self, rule: str) -> tuple[int, int]:
        """Number of pods that a rule still has to evict, and of their namespaces."""
        found: dict[Key, None] = {}
        for claim in self._devices.claims:
            for key in self._devices.pods_of(claim):
                facts = self.index.pods.get(key)
                if key in found or facts is None or facts.deleting:
                    continue
                pod = self.api.get(PODS, *key)
                eviction = None if pod is None else self._eviction(pod, self._devices)
                if eviction is not None and rule in eviction.rules:
                    found[key] = None
        return len(found), len({key[0] for key in found})


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
