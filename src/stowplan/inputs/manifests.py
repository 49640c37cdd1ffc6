"""Manifests: parsed YAML or JSON documents as typed objects.

A document is an object or a list of objects. Missing fields get the API server's defaults
(`object_defaults`), and all quantities are checked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from stowplan.apis.resource.beta_versions import as_v1
from stowplan.config.strict_decoder import format_value
from stowplan.inputs.input_error import mismatch
from stowplan.inputs.object_defaults import spec_with_defaults, with_defaults
from stowplan.objects import storage, workload
from stowplan.objects.devices import device, device_claim
from stowplan.objects.devices.scv import Scv
from stowplan.objects.encoding.json_codec import DecodeError, convert
from stowplan.objects.kai import kai_kinds
from stowplan.objects.kai.bind_request import KaiBindRequest
from stowplan.objects.kai.grouping.workload_owners import OWNER_KINDS, KaiOwner
from stowplan.objects.kai.node_topology import ZONE_AMOUNTS, NodeResourceTopology
from stowplan.objects.limits import LIMIT_FIELDS, LimitRange, ResourceQuota
from stowplan.objects.meta import NamespacedObject, Object, Value
from stowplan.objects.node import Node
from stowplan.objects.pod import ContainerStatus, Pod, PodCondition, PodSpec
from stowplan.objects.podgroup import GROUP_API_VERSIONS, PodGroup, Queue
from stowplan.objects.quantity import Quantity, QuantityError, value
from stowplan.objects.scheduling_group import (
    SCHEDULING_API_VERSION,
    SchedulingGroup,
    SchedulingWorkload,
)
from stowplan.objects.volcano.hyper_node import VolcanoHyperNode
from stowplan.objects.volume import PVCTemplate

T = TypeVar("T", bound=Object)

Workload = (
    workload.Deployment
    | workload.ReplicaSet
    | workload.StatefulSet
    | workload.DaemonSet
    | workload.Job
    | workload.ReplicationController
)


# Fields that only the controller of a kind reads.


class StatefulSetOrdinals(Value, frozen=True):
    """`spec.ordinals` of a StatefulSet."""

    start: int = 0


class StatefulSetControllerSpec(Value, frozen=True):
    """Fields of `spec` that only the StatefulSet controller reads."""

    ordinals: StatefulSetOrdinals = StatefulSetOrdinals()
    volume_claim_templates: tuple[PVCTemplate, ...] = ()


class StatefulSetControllerFields(Value, frozen=True):
    """Fields that only the StatefulSet controller reads."""

    spec: StatefulSetControllerSpec = StatefulSetControllerSpec()


class JobControllerStatus(Value, frozen=True):
    """`status` of a Job."""

    succeeded: int = 0
    completed_indexes: str = ""
    conditions: tuple[PodCondition, ...] = ()


class JobControllerFields(Value, frozen=True):
    """Fields that only the Job controller reads."""

    status: JobControllerStatus = JobControllerStatus()


class ManifestKind(NamedTuple):
    """A kind that scheduling reads. rest: type of the fields that only its controller reads."""

    groups: tuple[str, ...]
    value: type[Object]
    rest: type[Value] | None = None


_APPS = ("apps", "extensions")
_STORAGE = ("storage.k8s.io",)
_DEVICES = ("resource.k8s.io",)
_GANGS = tuple(version.partition("/")[0] for version in GROUP_API_VERSIONS)

KINDS: Mapping[str, ManifestKind] = {
    "Pod": ManifestKind(("",), Pod),
    "Node": ManifestKind(("",), Node),
    "Namespace": ManifestKind(("",), workload.Namespace),
    "Service": ManifestKind(("",), workload.Service),
    "ReplicationController": ManifestKind(("",), workload.ReplicationController),
    "PersistentVolume": ManifestKind(("",), storage.PersistentVolume),
    "PersistentVolumeClaim": ManifestKind(("",), storage.PersistentVolumeClaim),
    "Deployment": ManifestKind(_APPS, workload.Deployment),
    "ReplicaSet": ManifestKind(_APPS, workload.ReplicaSet),
    "DaemonSet": ManifestKind(_APPS, workload.DaemonSet),
    "StatefulSet": ManifestKind(_APPS, workload.StatefulSet, StatefulSetControllerFields),
    "Job": ManifestKind(("batch",), workload.Job, JobControllerFields),
    "StorageClass": ManifestKind(_STORAGE, storage.StorageClass),
    "CSINode": ManifestKind(_STORAGE, storage.CSINode),
    "CSIDriver": ManifestKind(_STORAGE, storage.CSIDriver),
    "CSIStorageCapacity": ManifestKind(_STORAGE, storage.CSIStorageCapacity),
    "VolumeAttachment": ManifestKind(_STORAGE, storage.VolumeAttachment),
    "PodDisruptionBudget": ManifestKind(("policy",), workload.PodDisruptionBudget),
    "ResourceClaim": ManifestKind(_DEVICES, device_claim.ResourceClaim),
    "ResourceClaimTemplate": ManifestKind(_DEVICES, device_claim.ResourceClaimTemplate),
    "ResourceSlice": ManifestKind(_DEVICES, device.ResourceSlice),
    "DeviceClass": ManifestKind(_DEVICES, device.DeviceClass),
    "DeviceTaintRule": ManifestKind(_DEVICES, device.DeviceTaintRule),
    "PriorityClass": ManifestKind(("scheduling.k8s.io",), workload.PriorityClass),
    "LimitRange": ManifestKind(("",), LimitRange),
    "ResourceQuota": ManifestKind(("",), ResourceQuota),
    "Scv": ManifestKind(("core.run-linux.com",), Scv),
    "PodGroup": ManifestKind(_GANGS, PodGroup),
    "Queue": ManifestKind(_GANGS, Queue),
    "HyperNode": ManifestKind(("topology.volcano.sh",), VolcanoHyperNode),
    "Topology": ManifestKind(("kai.scheduler",), kai_kinds.KaiTopologyObject),
    "BindRequest": ManifestKind(("scheduling.run.ai",), KaiBindRequest),
    "NodeResourceTopology": ManifestKind(("topology.node.k8s.io",), NodeResourceTopology),
    **{
        kind: ManifestKind((group,), value)
        for (group, kind), value in OWNER_KINDS.items()
        if issubclass(value, KaiOwner)
    },
}
"""Kind -> how it is read. Other kinds, and these kinds in other groups, are ignored."""

_CLUSTER_WIDE = frozenset(
    {"ClusterQueue", "Cohort", "ResourceFlavor", "AdmissionCheck", "WorkloadPriorityClass",
     "ClusterTrainingRuntime"}
)  # fmt: skip
"""Kinds without a namespace that are read elsewhere."""

OF_SCHEDULING: Mapping[tuple[str, str], ManifestKind] = {
    (SCHEDULING_API_VERSION, "PodGroup"): ManifestKind(("scheduling.k8s.io",), SchedulingGroup),
    (SCHEDULING_API_VERSION, "Workload"): ManifestKind(("scheduling.k8s.io",), SchedulingWorkload),
    (kai_kinds.KAI_GROUP_API_VERSION, "PodGroup"): ManifestKind(
        ("scheduling.run.ai",), kai_kinds.KaiPodGroupObject
    ),
    (kai_kinds.KAI_QUEUE_API_VERSION, "Queue"): ManifestKind(
        ("scheduling.run.ai",), kai_kinds.KaiQueueObject
    ),
}
"""apiVersion and kind -> how it is read: kinds of Kubernetes and of KAI-Scheduler whose names
others have, too."""


_KIND_OF: Mapping[type[Object], str] = {
    **{how.value: kind for kind, how in KINDS.items()},
    **{how.value: kind for (_, kind), how in OF_SCHEDULING.items()},
}


def kind_of(value: Object) -> str:
    """`kind` of a typed object: types whose kinds others have, too, have names of their own."""
    return _KIND_OF.get(type(value), type(value).__name__)


class ManifestEntry(NamedTuple):
    """An object, its file and document, and the fields that only its controller reads."""

    value: Object
    place: str
    rest: Value | None = None


class ManifestInventory:
    """Objects of documents, in order, and the number of ignored objects by kind."""

    def __init__(self) -> None:
        self.entries: list[ManifestEntry] = []
        self.ignored: Counter[str] = Counter()
        self._by_kind: dict[type[Object], dict[str, ManifestEntry]] = {}
        self._specs: dict[bytes, PodSpec] = {}

    def add_item(self, item: dict[str, Any], path: str, place: str) -> None:
        """Add one object of a document, as from `items`; raises DecodeError."""
        kind = OF_SCHEDULING.get((str(item.get("apiVersion")), item["kind"]))
        kind = kind or KINDS.get(item["kind"])
        if kind is None or group_of(item, path) not in kind.groups:
            self.ignored[full_kind(item, path)] += 1
            return
        found = decode_object(item, kind.value, path)
        rest = None if kind.rest is None else decode_object(item, kind.rest, path)
        self.add(self._checked_with_defaults(found, rest), place, rest)

    def add(self, found: Object, place: str, rest: Value | None = None) -> None:
        """Add an object; raises DecodeError for a duplicate."""
        entry = ManifestEntry(found, place, rest)
        entries = self._by_kind.setdefault(type(found), {})
        first = entries.setdefault(_key(found), entry)
        if first is not entry:
            raise DecodeError(f"Duplicate value: first defined in {first.place}", title(found))
        self.entries.append(entry)

    def all(self, kind: type[T]) -> Iterator[T]:
        """All objects of a kind, in order."""
        found = self._by_kind.get(kind, {}).values()
        return (entry.value for entry in found if isinstance(entry.value, kind))

    def has(self, one: Object) -> bool:
        """True when there is an object of this kind and key."""
        return _key(one) in self._by_kind.get(type(one), {})

    def find(self, kind: type[T], key: str) -> T | None:
        """The object of a kind by key, or None."""
        entry = self._by_kind.get(kind, {}).get(key)
        return entry.value if entry is not None and isinstance(entry.value, kind) else None

    def _checked_with_defaults(self, found: Object, rest: Value | None) -> Object:
        """The object with defaults; raises DecodeError for a bad quantity or a missing name."""
        if isinstance(found, Pod) and not found.name and found.metadata.generate_name:
            name = f"{found.metadata.generate_name}{len(self.entries)}"
            found = replace(found, metadata=replace(found.metadata, name=name))
        if not found.name:
            raise DecodeError(mismatch("", "a name"), f"{title(found)}: metadata.name")
        for path, name, q in (*_quantities(found), *_claimed(rest)):
            error = quantity_error(q)
            if error:
                raise DecodeError(error, f"{title(found)}: {_at(path, name)}")
        if isinstance(found, Workload):
            return self._with_template(found)
        if isinstance(found, Pod):
            spec = self._shared(spec_with_defaults(found.spec))
            return found if spec is found.spec else replace(found, spec=spec)
        return with_defaults(found)

    def _with_template(self, found: Workload) -> Workload:
        template = found.spec.template
        spec = spec_with_defaults(template.spec)
        if spec is template.spec:
            return found
        template = replace(template, spec=spec)
        changed: Workload = replace(found, spec=replace(found.spec, template=template))
        return changed

    def _shared(self, spec: PodSpec) -> PodSpec:
        """The spec, or an equal earlier one: caches of derived data are keyed by spec."""
        if spec.node_name:
            return spec
        return self._specs.setdefault(msgspec.msgpack.encode(spec), spec)


def title(found: Object) -> str:
    """An object as named in errors: `Pod default/web`."""
    key = _key(found) if found.name else found.metadata.generate_name
    return f"{kind_of(found)} {key}" if key else kind_of(found)


def _key(found: Object) -> str:
    return found.key if isinstance(found, NamespacedObject) else found.name


# Documents.


def items(
    tree: Any, path: str = "", listed: Mapping[str, str] | None = None
) -> Iterator[tuple[dict[str, Any], str]]:
    """(object, path) of every object of a document; lists are flattened.

    listed: kind and apiVersion of a typed list, for items without them. Raises DecodeError.
    """
    if not isinstance(tree, dict):
        raise DecodeError(mismatch(format_value(tree), "an object with apiVersion and kind"), path)
    tree = {**(listed or {}), **{k: v for k, v in tree.items() if v is not None}}
    kind = tree.get("kind", "")
    if not isinstance(kind, str) or not kind:
        got = format_value(kind) if kind else ""
        raise DecodeError(mismatch(got, "a kind such as Pod"), _join(path, "kind"))
    if kind not in KINDS and kind.endswith("List") and "items" in tree:
        listing = tree["items"]
        if not isinstance(listing, list):
            raise DecodeError(mismatch(format_value(listing), "a list"), _join(path, "items"))
        version = tree.get("apiVersion", "")
        inner = {"kind": kind.removesuffix("List"), "apiVersion": version} if kind != "List" else {}
        for index, item in enumerate(listing):
            yield from items(item, _join(path, f"items[{index}]"), inner)
    elif kind != "List":
        yield as_v1(tree), path


def group_of(tree: Mapping[str, Any], path: str) -> str:
    """API group of an object, "" for the core group; raises DecodeError without apiVersion."""
    version = tree.get("apiVersion", "")
    if not isinstance(version, str) or not version:
        got = format_value(version) if version else ""
        raise DecodeError(mismatch(got, "a version such as v1"), _join(path, "apiVersion"))
    return version.rpartition("/")[0]


def full_kind(tree: Mapping[str, Any], path: str) -> str:
    """`Job.batch`, or the kind alone in the core group; raises DecodeError without apiVersion."""
    group = group_of(tree, path)
    return f"{tree['kind']}.{group}" if group else str(tree["kind"])


def decode_object(tree: Mapping[str, Any], kind: type[Any], path: str) -> Any:
    """An object decoded as `kind`; raises DecodeError with object, path and value.

    path: of the object in its document.
    """
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError:
        # A null may stand for an absent field. It is rare, so the common path does not pay for it.
        pass
    try:
        return convert(tree, kind)
    except DecodeError as problem:
        inner, what = _mismatch_of(problem, tree)
        raise DecodeError(what, f"{untyped_title(tree, path)}: {inner}") from None


def untyped_title(tree: Mapping[str, Any], path: str) -> str:
    """`title` of an object that could not be decoded."""
    kind, meta = str(tree["kind"]), tree.get("metadata")
    name, namespace = (
        (meta.get("name"), meta.get("namespace")) if isinstance(meta, dict) else (None, None)
    )
    if not isinstance(name, str) or not name:
        return _join(path, kind)
    known = KINDS.get(kind)
    is_global = known is not None and not issubclass(known.value, NamespacedObject)
    if is_global or kind in _CLUSTER_WIDE:
        return f"{kind} {name}"
    return f"{kind} {namespace if isinstance(namespace, str) and namespace else 'default'}/{name}"


_EXPECTED = re.compile(r"Expected `(?P<expected>[^`]*)`, got `(?P<got>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[(?P<index>\d+)\]|\[(?P<any>\.\.\.)\]")
_TYPE_NAMES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "int | float | str": "a quantity",
}
_TITLES: Mapping[type, str] = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    list: "array",
    dict: "object",
}


def _mismatch_of(problem: DecodeError, tree: Any) -> tuple[str, str]:
    """(path, message) of a decoder's error."""
    missing = _MISSING.match(problem.what)
    if missing is not None:
        inside = _resolved(problem.path, tree, "object")[0].removeprefix("$")
        return _join(inside, missing["field"]), mismatch("", "a value")
    found = _EXPECTED.match(problem.what)
    path, got = _resolved(problem.path, tree, found["got"] if found else "str")
    if found is None:
        return path, mismatch(format_value(got), "a time such as 2026-01-31T12:00:00Z")
    expected = found["expected"].removesuffix(" | null")
    return path, mismatch(format_value(got), _TYPE_NAMES.get(expected, expected))


def _resolved(path: str, tree: Any, got: str) -> tuple[str, Any]:
    """A decoder's path completed with mapping keys, and the value there.

    got: the decoder's name of the type that it found.
    """
    steps = list(_STEP.finditer(path))
    wanted = got if any(step["any"] for step in steps) else ""
    return next(_places(steps, "", tree, wanted), (path.removeprefix("$."), None))


def _places(
    steps: list[re.Match[str]], resolved: str, tree: Any, got: str
) -> Iterator[tuple[str, Any]]:
    """All places that match the steps and have a value of type `got`; "": any type."""
    if not steps:
        if got in ("", _TITLES.get(type(tree))):
            yield resolved, tree
        return
    step, rest = steps[0], steps[1:]
    if step["index"] and isinstance(tree, list) and int(step["index"]) < len(tree):
        yield from _places(rest, f"{resolved}[{step['index']}]", tree[int(step["index"])], got)
    elif not step["index"] and isinstance(tree, dict):
        for key in [step["field"]] if step["field"] else list(tree):
            inner = _join(resolved, key) if step["field"] else _at(resolved, key)
            if key in tree:
                yield from _places(rest, inner, tree[key], got)


def _join(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field


def _at(path: str, key: str) -> str:
    return _join(path, key) if re.fullmatch(r"[\w-]+", key) else f"{path}[{key!r}]"


# Quantities.

Named = tuple[str, str, Quantity]


def _quantities(found: Object) -> Iterator[Named]:
    """(path, name, quantity) of all quantities of an object that plugins may read."""
    match found:
        case Node():
            yield from _each("status.allocatable", found.status.allocatable)
            yield from _each("status.capacity", found.status.capacity)
        case Pod():
            yield from _of_spec(found.spec, "spec")
            yield from _of_status(found)
        case _ if isinstance(found, Workload):
            yield from _of_spec(found.spec.template.spec, "spec.template.spec")
        case storage.PersistentVolume():
            yield from _each("spec.capacity", found.spec.capacity)
        case storage.PersistentVolumeClaim():
            yield from _each("spec.resources.requests", found.spec.resources.requests)
        case storage.CSIStorageCapacity():
            sizes = {"capacity": found.capacity, "maximumVolumeSize": found.maximum_volume_size}
            yield from _each("", {name: q for name, q in sizes.items() if q is not None})
        case Queue():
            yield from _each("spec.capability", found.spec.capability)
        case NodeResourceTopology():
            for i, zone in enumerate(found.zones):
                for j, one in enumerate(zone.resources):
                    of_zone = {name: getattr(one, name) for name in ZONE_AMOUNTS}
                    yield from _each(f"zones[{i}].resources[{j}]", of_zone)
        case ResourceQuota():
            yield from _each("spec.hard", found.spec.hard)
        case LimitRange():
            for index, item in enumerate(found.spec.limits):
                for name in LIMIT_FIELDS:
                    amounts = getattr(item, name)
                    yield from _each(f"spec.limits[{index}].{LIMIT_FIELDS[name]}", amounts)


def _each(path: str, amounts: Mapping[str, Quantity]) -> Iterator[Named]:
    return ((path, name, q) for name, q in amounts.items())


def _of_spec(spec: PodSpec, path: str) -> Iterator[Named]:
    lists = {"containers": spec.containers, "initContainers": spec.init_containers}
    for field, containers in lists.items():
        for index, container in enumerate(containers):
            inside = f"{path}.{field}[{index}].resources"
            yield from _each(f"{inside}.requests", container.resources.requests)
            yield from _each(f"{inside}.limits", container.resources.limits)
    yield from _each(f"{path}.overhead", spec.overhead)
    if spec.resources is not None:
        yield from _each(f"{path}.resources.requests", spec.resources.requests)
        yield from _each(f"{path}.resources.limits", spec.resources.limits)

    for index, volume in enumerate(spec.volumes):
        claim = volume.ephemeral.volume_claim_template if volume.ephemeral else None
        if claim is not None:
            inside = f"{path}.volumes[{index}].ephemeral.volumeClaimTemplate.spec"
            yield from _each(f"{inside}.resources.requests", claim.spec.resources.requests)


def _claimed(rest: Value | None) -> Iterator[Named]:
    templates = (
        rest.spec.volume_claim_templates if isinstance(rest, StatefulSetControllerFields) else ()
    )
    for index, claim in enumerate(templates):
        path = f"spec.volumeClaimTemplates[{index}].spec.resources.requests"
        yield from _each(path, claim.spec.resources.requests)


def _of_status(pod: Pod) -> Iterator[Named]:
    status = pod.status
    yield from _each("status.allocatedResources", status.allocated_resources)
    if status.resources is not None:
        yield from _each("status.resources.requests", status.resources.requests)
    yield from _of_reports("status.containerStatuses", status.container_statuses)
    yield from _of_reports("status.initContainerStatuses", status.init_container_statuses)


def _of_reports(path: str, reports: Iterable[ContainerStatus]) -> Iterator[Named]:
    for index, report in enumerate(reports):
        inside = f"{path}[{index}]"
        yield from _each(f"{inside}.allocatedResources", report.allocated_resources)
        if report.resources is not None:
            yield from _each(f"{inside}.resources.requests", report.resources.requests)


def quantity_error(q: Quantity) -> str:
    """The error of a malformed or negative quantity, "" for a valid one."""
    try:
        return mismatch(format_value(q), "a quantity of at least 0") if value(q) < 0 else ""
    except QuantityError as problem:
        expected = str(problem).partition("expected ")[2]
        return mismatch(format_value(q), f"a quantity: {expected}")
