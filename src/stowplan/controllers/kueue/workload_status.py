"""The status of Workloads as Kueue writes it, and names and texts that its controllers share.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/workload/workload.go,
pkg/controller/jobframework/workload_names.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha1

from stowplan.apis.kind.conditions import find_condition, set_status_condition
from stowplan.controllers.kueue.kueue_kinds import API_VERSION, FLAVORS
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store

QUOTA_RESERVED, ADMITTED, EVICTED, PREEMPTED = "QuotaReserved", "Admitted", "Evicted", "Preempted"
REQUEUED, FINISHED, PODS_READY = "Requeued", "Finished", "PodsReady"
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


def release_quota(workload: Tree, now: float) -> None:
    """An evicted Workload whose pods are gone gives its quota back, and waits again."""
    evicted = condition_of(workload, EVICTED) or {}
    reason, message = str(evicted.get("reason", "")), str(evicted.get("message", ""))
    status = workload["status"]
    status.pop("admission", None)
    status.pop("admissionChecks", None)
    note(workload, QUOTA_RESERVED, False, "Pending", message, now)
    if condition_of(workload, ADMITTED) is not None:
        text = "The workload has no reservation"
        note(workload, ADMITTED, False, "NoReservation", text, now)
    has_backoff = bool((status.get("requeueState") or {}).get("requeueAt"))
    is_requeued = reason != "Deactivated" and not has_backoff
    note(workload, REQUEUED, is_requeued, reason, message, now)


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
