"""The tables of workloads, storage, scheduling, leases, rights and devices.

Source: kubernetes v1.36, pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from typing import Any

from stowplan.apis.kind.core_tables import UNSET, joined_labels
from stowplan.apis.kind.printing import (
    NONE,
    PrintedTable,
    age_of,
    containers_of,
    name_of,
    selector_text,
)
from stowplan.apis.machinery import timestamps

Tree = dict[str, Any]

_TEMPLATE = "Containers+, Images+"


def _deployment(obj: Tree, now: float) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    return [
        name_of(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age_of(obj, now),
        *containers_of(spec["template"]),
        selector_text(spec["selector"]).replace(NONE, ""),
    ]


def _replica_set(obj: Tree, now: float) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    return [
        name_of(obj),
        spec.get("replicas", 0),
        status["replicas"],
        status.get("readyReplicas", 0),
        age_of(obj, now),
        *containers_of(spec["template"]),
        selector_text(spec["selector"]),
    ]


def _stateful_set(obj: Tree, now: float) -> list[Any]:
    ready = f"{obj['status'].get('readyReplicas', 0)}/{obj['spec'].get('replicas', 0)}"
    return [name_of(obj), ready, age_of(obj, now), *containers_of(obj["spec"]["template"])]


def _daemon_set(obj: Tree, now: float) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    return [
        name_of(obj),
        status["desiredNumberScheduled"],
        status["currentNumberScheduled"],
        status["numberReady"],
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        joined_labels(spec["template"]["spec"].get("nodeSelector")),
        age_of(obj, now),
        *containers_of(spec["template"]),
        selector_text(spec["selector"]),
    ]


def _job(obj: Tree, now: float) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    done = status.get("succeeded", 0)
    completions = f"{done}/1"
    if "completions" in spec:
        completions = f"{done}/{spec['completions']}"
    elif spec.get("parallelism", 0) > 1:
        completions = f"{done}/1 of {spec['parallelism']}"
    took = ""
    if status.get("startTime"):
        ended = status.get("completionTime")
        until = timestamps.parse_time(ended) if ended else now
        took = timestamps.human_duration(until - timestamps.parse_time(status["startTime"]))
    return [
        name_of(obj),
        _job_status(obj),
        completions,
        took,
        age_of(obj, now),
        *containers_of(spec["template"]),
        selector_text(spec.get("selector")),
    ]


def _job_status(obj: Tree) -> str:
    true: dict[str, str] = {}
    for one in obj["status"].get("conditions", ()):
        true.setdefault(one["type"], one["status"])
    is_true = {name for name, status in true.items() if status == "True"}
    for name in ("Complete", "Failed"):
        if name in is_true:
            return name
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for name in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if name in is_true:
            return name
    return "Running"


def _cron_job(obj: Tree, now: float) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    last = status.get("lastScheduleTime")
    job = spec["jobTemplate"]["spec"]
    return [
        name_of(obj),
        spec["schedule"],
        spec.get("timeZone", NONE),
        "True" if spec.get("suspend") else "False",
        len(status.get("active", ())),
        timestamps.human_age(last, now) if last else NONE,
        age_of(obj, now),
        *containers_of(job["template"]),
        selector_text(job.get("selector")),
    ]


def _budget(obj: Tree, now: float) -> list[Any]:
    spec = obj["spec"]
    return [
        name_of(obj),
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        obj["status"]["disruptionsAllowed"],
        age_of(obj, now),
    ]


def _revision(obj: Tree, now: float) -> list[Any]:
    owner = NONE
    for one in obj["metadata"].get("ownerReferences", ()):
        if one.get("controller"):
            group = one["apiVersion"].rpartition("/")[0]
            owner = f"{one['kind'].lower()}{'.' + group if group else ''}/{one['name']}"
    return [name_of(obj), owner, obj["revision"], age_of(obj, now)]


def _storage_class(obj: Tree, now: float) -> list[Any]:
    annotations = obj["metadata"].get("annotations", {})
    default = any(
        annotations.get(f"storageclass.{infix}kubernetes.io/is-default-class") == "true"
        for infix in ("", "beta.")
    )
    return [
        name_of(obj) + (" (default)" if default else ""),
        obj["provisioner"],
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        obj.get("allowVolumeExpansion", False),
        age_of(obj, now),
    ]


def _attachment(obj: Tree, now: float) -> list[Any]:
    spec = obj["spec"]
    return [
        name_of(obj),
        spec["attacher"],
        spec["source"].get("persistentVolumeName", ""),
        spec["nodeName"],
        obj["status"]["attached"],
        age_of(obj, now),
    ]


def _csi_node(obj: Tree, now: float) -> list[Any]:
    return [name_of(obj), len(obj["spec"]["drivers"] or ()), age_of(obj, now)]


def _csi_driver(obj: Tree, now: float) -> list[Any]:
    spec = obj["spec"]
    tokens = spec.get("tokenRequests")
    return [
        name_of(obj),
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        ",".join(one["audience"] for one in tokens) if tokens is not None else UNSET,
        spec.get("requiresRepublish", False),
        ",".join(spec.get("volumeLifecycleModes", ())) or NONE,
        age_of(obj, now),
    ]


def _attributes_class(obj: Tree, now: float) -> list[Any]:
    return [name_of(obj), obj["driverName"], age_of(obj, now)]


def _priority(obj: Tree, now: float) -> list[Any]:
    return [
        name_of(obj),
        obj["value"],
        obj.get("globalDefault", False),
        age_of(obj, now),
        obj.get("preemptionPolicy", ""),
    ]


def _lease(obj: Tree, now: float) -> list[Any]:
    return [name_of(obj), obj["spec"].get("holderIdentity", ""), age_of(obj, now)]


def _runtime_class(obj: Tree, now: float) -> list[Any]:
    return [name_of(obj), obj["handler"], age_of(obj, now)]


def _binding(obj: Tree, now: float) -> list[Any]:
    role = f"{obj['roleRef']['kind']}/{obj['roleRef']['name']}"
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for one in obj.get("subjects", ()):
        name = one["name"]
        if one["kind"] == "ServiceAccount" and one.get("namespace"):
            name = f"{one['namespace']}/{name}"
        by_kind.setdefault(one["kind"], []).append(name)
    cells = [", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [name_of(obj), role, age_of(obj, now), *cells]


def _role(obj: Tree, now: float) -> list[Any]:
    return [name_of(obj), obj["metadata"].get("creationTimestamp")]


def _claim(obj: Tree, now: float) -> list[Any]:
    deleting = bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleting else []
    if "allocation" not in obj["status"]:
        states += [] if deleting else ["pending"]
    else:
        states.append("allocated")
        if obj["status"].get("reservedFor"):
            states.append("reserved")
    return [name_of(obj), ",".join(states), age_of(obj, now)]


def _slice(obj: Tree, now: float) -> list[Any]:
    spec = obj["spec"]
    pool = spec["pool"]["name"]
    return [name_of(obj), spec.get("nodeName", ""), spec["driver"], pool, age_of(obj, now)]


DEPLOYMENTS = PrintedTable(
    f"Name, Ready, Up-to-date, Available, Age, {_TEMPLATE}, Selector+", _deployment
)
REPLICA_SETS = PrintedTable(
    f"Name, Desired:integer, Current:integer, Ready:integer, Age, {_TEMPLATE}, Selector+",
    _replica_set,
)
STATEFUL_SETS = PrintedTable(f"Name, Ready, Age, {_TEMPLATE}", _stateful_set)
DAEMON_SETS = PrintedTable(
    "Name, Desired:integer, Current:integer, Ready:integer, Up-to-date:integer, "
    f"Available:integer, Node Selector, Age, {_TEMPLATE}, Selector+",
    _daemon_set,
)
JOBS = PrintedTable(f"Name, Status, Completions, Duration, Age, {_TEMPLATE}, Selector+", _job)
CRON_JOBS = PrintedTable(
    "Name, Schedule, Timezone, Suspend:boolean, Active:integer, Last Schedule, Age, "
    f"{_TEMPLATE}, Selector+",
    _cron_job,
)
BUDGETS = PrintedTable(
    "Name, Min Available, Max Unavailable, Allowed Disruptions:integer, Age", _budget
)
REVISIONS = PrintedTable("Name, Controller, Revision, Age", _revision)
STORAGE_CLASSES = PrintedTable(
    "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age",
    _storage_class,
)
ATTACHMENTS = PrintedTable("Name, Attacher::name, PV, Node, Attached:boolean, Age", _attachment)
CSI_NODES = PrintedTable("Name, Drivers:integer, Age", _csi_node)
CSI_DRIVERS = PrintedTable(
    "Name, AttachRequired:boolean, PodInfoOnMount:boolean, StorageCapacity:boolean, "
    "TokenRequests, RequiresRepublish:boolean, Modes, Age",
    _csi_driver,
)
ATTRIBUTES_CLASSES = PrintedTable("Name, DriverName, Age", _attributes_class)
PRIORITIES = PrintedTable(
    "Name, Value:integer, Global-Default:boolean, Age, PreemptionPolicy", _priority
)
LEASES = PrintedTable("Name, Holder, Age", _lease)
RUNTIME_CLASSES = PrintedTable("Name, Handler, Age", _runtime_class)
BINDINGS = PrintedTable("Name, Role, Age, Users+, Groups+, ServiceAccounts+", _binding)
ROLES = PrintedTable("Name, Created At:date", _role)
RESOURCE_CLAIMS = PrintedTable("Name, State, Age", _claim)
RESOURCE_SLICES = PrintedTable("Name, Node, Driver, Pool, Age", _slice)
