"""The status of Workloads as Kueue writes it, and names and texts that its controllers share.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/workload/workload.go,
pkg/controller/jobframework/workload_names.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha1

from stowplan.apis.kind.conditions import find_condition, set_status_condition
from stowplan.controller_runtime.object_times import format_time, unix_seconds
from stowplan.controllers.kueue.kueue_kinds import API_VERSION, FLAVORS
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store

QUOTA_RESERVED, ADMITTED, EVICTED, PREEMPTED = "QuotaReserved", "Admitted", "Evicted", "Preempted"
REQUEUED, FINISHED, PODS_READY = "Requeued", "Finished", "PodsReady"
WAIT_FOR_RECOVERY = "WaitForRecovery"
DEACTIVATED = "Deactivated"
REQUEUED_AT_ONCE = (PREEMPTED, "NodeFailures")
"""Reasons of evictions after which a Workload is tried again at once."""
_NAME_MAX = 253
_HASH_LENGTH = 5


def workload_name(kind: str, group: str, name: str, uid: str) -> str:
    """Name of the Workload of an object: its kind and name, and a hash."""
    prefix = f"{kind.lower()}-{name}"[: _NAME_MAX - _HASH_LENGTH - 1]
    text = "\n".join((kind, group, name, uid))
    # The hash names an object and protects nothing.
    digest = sha1(text.encode(), usedforsecurity=False).hexdigest()
    return f"{prefix}-{digest[:_HASH_LENGTH]}"


def new_workload(name: str, owners: list[Tree], namespace: str, spec: Tree) -> Tree:
    """A Workload as it is created."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners},
        "spec": {"active": True, **spec},
    }


def condition_of(workload: Tree, kind: str) -> Tree | None:
    """A condition of a Workload."""
    return find_condition((workload.get("status") or {}).get("conditions") or (), kind)


def is_true(workload: Tree, kind: str) -> bool:
    """Whether a condition is true."""
    found = condition_of(workload, kind)
    return found is not None and found.get("status") == "True"


def note(workload: Tree, kind: str, status: bool, reason: str, message: str, now: float) -> bool:
    """Set a condition; whether anything but its time is new."""
    old = condition_of(workload, kind)
    wanted = {
        "type": kind,
        "status": str(status),
        "reason": reason,
        "message": message,
        "observedGeneration": workload["metadata"].get("generation", 0),
    }
    if old is not None and all(old.get(name) == value for name, value in wanted.items()):
        return False
    conditions = workload.setdefault("status", {}).setdefault("conditions", [])
    set_status_condition(conditions, wanted, now)
    return True


def holds_quota(workload: Tree) -> bool:
    """Whether quota is reserved for a Workload."""
    return is_true(workload, QUOTA_RESERVED)


def note_not_admitted(workload: Tree, now: float) -> bool:
    """A Workload without a reservation is not admitted; whether that is new.

    The time for which it was admitted is added up.
    """
    before = condition_of(workload, ADMITTED)
    if before is not None and before.get("status") == "True":
        status = workload["status"]
        past = int(status.get("accumulatedPastExecutionTimeSeconds") or 0)
        ran = max(0.0, now - unix_seconds(before.get("lastTransitionTime")))
        status["accumulatedPastExecutionTimeSeconds"] = past + int(ran)
    return note(workload, ADMITTED, False, "NoReservation", "The workload has no reservation", now)


def queued_at(workload: Tree) -> float:
    """Unix seconds since which a Workload waits: it was created, or requeued."""
    requeued = condition_of(workload, REQUEUED) or {}
    created = workload["metadata"].get("creationTimestamp")
    return unix_seconds(requeued.get("lastTransitionTime") or created)


def note_evicted(workload: Tree, reason: str, message: str, now: float) -> None:
    """A Workload has to stop; the answers of its admission checks count no more."""
    note(workload, EVICTED, True, reason, message, now)
    status = workload["status"]
    status.pop("unhealthyNodes", None)
    for check in status.get("admissionChecks") or ():
        state = check.get("state", "Pending")
        if state == "Pending":
            continue
        if state == "Retry":
            check["retryCount"] = int(check.get("retryCount") or 0) + 1
        check.pop("podSetUpdates", None)
        check |= {
            "state": "Pending",
            "message": f"Reset to Pending after eviction. Previously: {state}",
            "lastTransitionTime": format_time(now),
        }


def release_quota(workload: Tree, now: float) -> None:
    """An evicted Workload whose pods are gone gives its quota back, and waits again."""
    evicted = condition_of(workload, EVICTED) or {}
    reason, message = str(evicted.get("reason", "")), str(evicted.get("message", ""))
    note(workload, REQUEUED, reason in REQUEUED_AT_ONCE, reason, message, now)
    drop_reservation(workload, "PendingEvaluation", message, now)


def drop_reservation(workload: Tree, reason: str, message: str, now: float) -> None:
    """A Workload has no quota any more."""
    workload["status"].pop("admission", None)
    note(workload, QUOTA_RESERVED, False, reason, message, now)
    note_not_admitted(workload, now)


def note_pods_ready(workload: Tree, are_ready: bool, now: float) -> bool:
    """Note whether the pods of an admitted Workload are ready; whether that is new."""
    before = condition_of(workload, PODS_READY)
    recovers = before is not None and before["reason"] in (WAIT_FOR_RECOVERY, "Recovered")
    if are_ready:
        text = "All pods reached readiness and the workload is running"
        return note(workload, PODS_READY, True, "Recovered" if recovers else "Started", text, now)
    failed = before is not None and (
        before["status"] == "True" or before["reason"] == WAIT_FOR_RECOVERY
    )
    if failed and is_true(workload, ADMITTED):
        text = "At least one pod has failed, waiting for recovery"
        return note(workload, PODS_READY, False, WAIT_FOR_RECOVERY, text, now)
    text = "Not all pods are ready or succeeded"
    return note(workload, PODS_READY, False, "WaitForStart", text, now)


class PodSetInfo:
    """What an admission changes in the template of a pod set."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.node_selector: dict[str, str] = {}
        self.tolerations: list[Tree] = []
        self.has_places = False

    def apply(self, spec: Tree) -> None:
        """Change the spec of a pod or template."""
        selector = {**(spec.get("nodeSelector") or {}), **self.node_selector}
        if selector:
            spec["nodeSelector"] = selector
        tolerations = list(spec.get("tolerations") or ())
        tolerations += [one for one in self.tolerations if one not in tolerations]
        if tolerations:
            spec["tolerations"] = tolerations


def pod_set_infos(workload: Tree, api: Store) -> Mapping[str, PodSetInfo]:
    """What the admission of a Workload changes, by pod set: flavors, and updates of checks."""
    status = workload.get("status") or {}
    counts = {one["name"]: int(one.get("count", 1)) for one in workload["spec"]["podSets"]}
    found = {}
    for one in (status.get("admission") or {}).get("podSetAssignments") or ():
        info = PodSetInfo(int(one.get("count", counts.get(one["name"], 1))))
        info.has_places = bool(one.get("topologyAssignment"))
        for flavor in sorted(set((one.get("flavors") or {}).values())):
            spec = (api.get(FLAVORS, "", flavor) or {}).get("spec") or {}
            info.node_selector |= spec.get("nodeLabels") or {}
            info.tolerations += spec.get("tolerations") or ()
        for check in status.get("admissionChecks") or ():
            for update in check.get("podSetUpdates") or ():
                if update.get("name") == one["name"]:
                    info.node_selector |= update.get("nodeSelector") or {}
                    info.tolerations += update.get("tolerations") or ()
        found[str(one["name"])] = info
    return found
