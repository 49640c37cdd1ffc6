"""The tables of nodes, namespaces, services and the other kinds of core.

Source: kubernetes v1.36, pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from typing import Any

from stowplan.apis.kind.printing import NONE, UNKNOWN, PrintedTable, age_of, containers_of, name_of
from stowplan.apis.machinery import timestamps

Tree = dict[str, Any]

_ROLE = "node-role.kubernetes.io/"
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
UNSET = "<unset>"


def joined_labels(labels: Tree | None) -> str:
    """`a=b,c=d`, sorted; `<none>` for no labels."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def _node(obj: Tree, now: float) -> list[Any]:
    status, spec = obj["status"], obj["spec"]
    ready = [one["status"] for one in status.get("conditions", ()) if one["type"] == "Ready"]
    state = "Unknown"
    if ready:
        state = "Ready" if ready[-1] == "True" else "NotReady"
    if spec.get("unschedulable"):
        state += ",SchedulingDisabled"
    info = status["nodeInfo"]
    kernel = info["kernelVersion"] or UNKNOWN
    if info["architecture"]:
        kernel += f" ({info['architecture']})"
    return [
        name_of(obj),
        state,
        ",".join(_roles(obj["metadata"].get("labels", {}))) or NONE,
        age_of(obj, now),
        info["kubeletVersion"],
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info["osImage"] or UNKNOWN,
        kernel,
        info["containerRuntimeVersion"] or UNKNOWN,
    ]


def _roles(labels: dict[str, str]) -> list[str]:
    found = set()
    for key, value in labels.items():
        if key.startswith(_ROLE) and key != _ROLE:
            found.add(key.removeprefix(_ROLE))
        elif key == "kubernetes.io/role" and value:
            found.add(value)
    return sorted(found)


def _address(status: Tree, kind: str) -> str:
    for one in status.get("addresses", ()):
        if one["type"] == kind:
            return str(one["address"])
    return NONE


def _namespace(obj: Tree, now: float) -> list[Any]:
    return [name_of(obj), obj["status"].get("phase", ""), age_of(obj, now)]


def _service(obj: Tree, now: float) -> list[Any]:
    spec = obj["spec"]
    ips = spec.get("clusterIPs") or [NONE]
    ports = ",".join(
        f"{one['port']}:{one['nodePort']}/{one['protocol']}"
        if one.get("nodePort")
        else f"{one['port']}/{one['protocol']}"
        for one in spec.get("ports", ())
    )
    return [
        name_of(obj),
        spec["type"],
        ips[0],
        _external_ip(obj),
        ports or NONE,
        age_of(obj, now),
        joined_labels(spec.get("selector")),
    ]


def _external_ip(obj: Tree) -> str:
    spec = obj["spec"]
    given = spec.get("externalIPs", [])
    match spec["type"]:
        case "ClusterIP" | "NodePort":
            return ",".join(given) or NONE
        case "LoadBalancer":
            ingress = obj["status"]["loadBalancer"].get("ingress", ())
            found = {one.get("ip") or one.get("hostname") or "" for one in ingress} - {""}
            return ",".join([*sorted(found), *given]) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return UNKNOWN


def _endpoints(obj: Tree, now: float) -> list[Any]:
    shown: list[str] = []
    for subset in obj.get("subsets", ()):
        addresses = [one["ip"] for one in subset.get("addresses", ())]
        ports = subset.get("ports", [])
        if not ports:
            shown += addresses
        shown += [
            f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}"
            for port in ports
            for ip in addresses
        ]
    text = ",".join(shown[:3])
    if len(shown) > 3:
        text += f" + {len(shown) - 3} more..."
    return [name_of(obj), text if obj.get("subsets") else NONE, age_of(obj, now)]


def _replication_controller(obj: Tree, now: float) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    return [
        name_of(obj),
        spec.get("replicas", 0),
        status["replicas"],
        status.get("readyReplicas", 0),
        age_of(obj, now),
        *containers_of(spec.get("template")),
        joined_labels(spec.get("selector")),
    ]


def _config_map(obj: Tree, now: float) -> list[Any]:
    n_data = len(obj.get("data", ())) + len(obj.get("binaryData", ()))
    return [name_of(obj), n_data, age_of(obj, now)]


def _secret(obj: Tree, now: float) -> list[Any]:
    return [name_of(obj), obj.get("type", ""), len(obj.get("data", ())), age_of(obj, now)]


def _service_account(obj: Tree, now: float) -> list[Any]:
    return [name_of(obj), age_of(obj, now)]


def _modes(given: list[str]) -> str:
    return ",".join(short for name, short in _MODES.items() if name in given)


def _class(obj: Tree) -> str:
    old = obj["metadata"].get("annotations", {}).get(_OLD_CLASS)
    return str(old if old is not None else obj["spec"].get("storageClassName", ""))


def _volume(obj: Tree, now: float) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    claim = spec.get("claimRef")
    deleting = obj["metadata"].get("deletionTimestamp")
    return [
        name_of(obj),
        spec.get("capacity", {}).get("storage", "0"),
        _modes(spec.get("accessModes", [])),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if deleting else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim is not None else "",
        _class(obj),
        spec.get("volumeAttributesClassName", UNSET),
        status.get("reason", ""),
        age_of(obj, now),
        spec.get("volumeMode", UNSET),
    ]


def _claim(obj: Tree, now: float) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    bound = bool(spec.get("volumeName"))
    deleting = obj["metadata"].get("deletionTimestamp")
    return [
        name_of(obj),
        "Terminating" if deleting else status.get("phase", ""),
        spec.get("volumeName", ""),
        status.get("capacity", {}).get("storage", "0") if bound else "",
        _modes(status.get("accessModes", [])) if bound else "",
        _class(obj),
        spec.get("volumeAttributesClassName", UNSET),
        age_of(obj, now),
        spec.get("volumeMode", UNSET),
    ]


def _event(obj: Tree, now: float) -> list[Any]:
    about = obj["involvedObject"]
    first = timestamps.human_age(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = timestamps.human_age(obj["lastTimestamp"], now) if obj.get("lastTimestamp") else first
    count = obj.get("count", 0) or 1
    series = obj.get("series")
    if series is not None:
        last, count = (
            timestamps.human_age(series.get("lastObservedTime"), now),
            series.get("count", 0),
        )
    target = about.get("kind", "").lower()
    if about.get("name"):
        target += f"/{about['name']}"
    source = [
        obj["source"].get("component") or obj.get("reportingComponent", ""),
        obj["source"].get("host") or obj.get("reportingInstance", ""),
    ]
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        target,
        about.get("fieldPath", ""),
        ", ".join(one for one in source if one) if source[1] else source[0],
        obj.get("message", "").strip(),
        first,
        count,
        name_of(obj),
    ]


def _quota(obj: Tree, now: float) -> list[Any]:
    status = obj["status"]
    hard, used = status.get("hard", {}), status.get("used", {})
    columns: tuple[list[str], list[str]] = ([], [])
    for name in sorted(hard):
        columns[name.startswith("limits.")].append(f"{name}: {used.get(name, '0')}/{hard[name]}")
    return [name_of(obj), ", ".join(columns[0]), ", ".join(columns[1]), age_of(obj, now)]


def _pod_template(obj: Tree, now: float) -> list[Any]:
    template = obj["template"]
    labels = template["metadata"].get("labels")
    return [name_of(obj), *containers_of(template), joined_labels(labels)]


def _created(obj: Tree, now: float) -> list[Any]:
    return [name_of(obj), obj["metadata"].get("creationTimestamp")]


NODES = PrintedTable(
    "Name, Status, Roles, Age, Version, Internal-IP+, External-IP+, OS-Image+, Kernel-Version+, "
    "Container-Runtime+",
    _node,
)
NAMESPACES = PrintedTable("Name, Status, Age", _namespace)
SERVICES = PrintedTable("Name, Type, Cluster-IP, External-IP, Port(s), Age, Selector+", _service)
ENDPOINTS = PrintedTable("Name, Endpoints, Age", _endpoints)
REPLICATION_CONTROLLERS = PrintedTable(
    "Name, Desired:integer, Current:integer, Ready:integer, Age, Containers+, Images+, Selector+",
    _replication_controller,
)
CONFIG_MAPS = PrintedTable("Name, Data, Age", _config_map)
SECRETS = PrintedTable("Name, Type, Data, Age", _secret)
SERVICE_ACCOUNTS = PrintedTable("Name, Age", _service_account)
VOLUMES = PrintedTable(
    "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, "
    "VolumeAttributesClass, Reason, Age, VolumeMode+",
    _volume,
)
CLAIMS = PrintedTable(
    "Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, "
    "VolumeMode+",
    _claim,
)
EVENTS = PrintedTable(
    "Last Seen, Type, Reason, Object, Subobject+, Source+, Message, First Seen+, Count+, Name+",
    _event,
)
QUOTAS = PrintedTable("Name, Request, Limit, Age", _quota)
POD_TEMPLATES = PrintedTable("Name, Containers, Images, Pod Labels", _pod_template)
CREATED_AT = PrintedTable("Name, Created At:date", _created)
NAMED = PrintedTable("Name, Age", _service_account)
