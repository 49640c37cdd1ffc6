"""Volumes, claims, storage classes and CSI objects: what is valid and what stays.

Source: kubernetes v1.36, pkg/apis/core/validation, pkg/apis/storage/validation, and the strategies
in pkg/registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.core import pod_scheduling
from stowplan.apis.core.volume_claim_spec import VOLUME_MODES, access_modes, volume_claim_spec
from stowplan.apis.core.volume_source import csi_driver_name, host_path, nfs
from stowplan.apis.kind.strategy import BuiltinStrategy, restore_field
from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
)
from stowplan.apis.machinery.names import subdomain_problems
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy
from stowplan.apis.schema import canonical_quantity
from stowplan.apis.schema.internal_form import internal_diff, internal_form
from stowplan.apis.validation import field_checks, resource_requirements

Tree = dict[str, Any]

_RECLAIM = ("Delete", "Recycle", "Retain")
_NOT_SOURCES = frozenset(
    {
        "capacity",
        "accessModes",
        "claimRef",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "mountOptions",
        "volumeMode",
        "nodeAffinity",
        "volumeAttributesClassName",
    }
)
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


class PersistentVolumeStrategy(ResourceStrategy):
    """Persistent volumes."""

    returns_deleted = True

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        since = timestamps.format_time(call.now)
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": since}

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "status")

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        return volume_spec(obj["spec"], "spec")

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        yield from volume_spec(new["spec"], "spec")
        yield from _volume_update(new["spec"], old["spec"])


class PersistentVolumeStatusStrategy(ResourceStrategy):
    """`persistentvolumes/status`: a change of phase is dated."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "spec")
        status, before = new["status"], old["status"]
        since, was = status.get("lastPhaseTransitionTime"), before.get("lastPhaseTransitionTime")
        if status.get("phase") == before.get("phase"):
            if since is None and was is not None:
                status["lastPhaseTransitionTime"] = was
        elif since is None or since == was:
            status["lastPhaseTransitionTime"] = timestamps.format_time(call.now)


class PersistentVolumeClaimStrategy(ResourceStrategy):
    """Claims of volumes."""

    returns_deleted = True

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        obj["status"] = {"phase": "Pending"}
        _drop_unsupported_data_source(obj["spec"], {})
        _normalize_data_source(obj["spec"])

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "status")
        _drop_unsupported_data_source(new["spec"], old["spec"])
        _normalize_data_source(new["spec"])

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        return volume_claim_spec(obj["spec"], "spec")

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        yield from volume_claim_spec(new["spec"], "spec")
        yield from _claim_update(new, old)


class PersistentVolumeClaimStatusStrategy(ResourceStrategy):
    """`persistentvolumeclaims/status`."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "spec")

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        for name in sorted(new["status"].get("capacity", {})):
            value = new["status"]["capacity"][name]
            yield from resource_requirements.validate_resource_quantity(
                name, value, f"status.capacity[{name}]"
            )


_OLD_SOURCES = (
    ("", "PersistentVolumeClaim"),
    ("snapshot.storage.k8s.io", "VolumeSnapshot"),
)


def _drop_unsupported_data_source(spec: Tree, old: Tree) -> None:
    """The old field names claims and snapshots; anything else in it is dropped without a word."""
    if "dataSource" in old or "dataSourceRef" in old or "dataSourceRef" in spec:
        return
    one = spec.get("dataSource")
    if one is not None and (one.get("apiGroup") or "", one["kind"]) not in _OLD_SOURCES:
        del spec["dataSource"]


def _normalize_data_source(spec: Tree) -> None:
    """dataSource and dataSourceRef name the same, where only one was given."""
    one, other = spec.get("dataSource"), spec.get("dataSourceRef")
    if one is not None and other is None:
        spec["dataSourceRef"] = dict(one)
    elif other is not None and one is None and not other.get("namespace"):
        spec["dataSource"] = {key: value for key, value in other.items() if key != "namespace"}


def volume_spec(spec: Tree, path: str) -> Iterator[Cause]:
    """A volume: how large, how mounted, what it is."""
    modes = spec.get("accessModes", [])
    if not modes:
        yield required(f"{path}.accessModes")
    yield from access_modes(modes, f"{path}.accessModes")
    yield from _capacity(spec.get("capacity", {}), f"{path}.capacity")
    policy = spec.get("persistentVolumeReclaimPolicy", "")
    if policy and policy not in _RECLAIM:
        yield not_supported(f"{path}.persistentVolumeReclaimPolicy", policy, _RECLAIM)
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        wanted = affinity.get("required")
        if wanted is None:
            text = "must specify required node constraints"
            yield required(f"{path}.nodeAffinity.required", text)
        else:
            yield from pod_scheduling.node_selector(wanted, f"{path}.nodeAffinity.required")
    yield from _volume_source(spec, path)
    yield from _other_volume_fields(spec, path)


def _capacity(given: dict[str, str], path: str) -> Iterator[Cause]:
    if not given:
        yield required(path)
    if "storage" not in given or len(given) > 1:
        yield not_supported(path, given or None, ["storage"])
    for name, value in sorted(given.items()):
        here = f"{path}[{name}]"
        if canonical_quantity.is_negative(value):
            yield invalid(
                here, canonical_quantity.amount(value).value(), "must be a valid resource quantity"
            )
        if canonical_quantity.is_negative(value) or canonical_quantity.is_zero(value):
            yield invalid(here, value, field_checks.POSITIVE)


def _volume_source(spec: Tree, path: str) -> Iterator[Cause]:
    sources = [name for name in spec if name not in _NOT_SOURCES]
    for name in sources[1:]:
        yield forbidden_field(f"{path}.{name}", "may not specify more than 1 volume type")
    if not sources:
        yield required(path, "must specify a volume type")
        return
    name, source = sources[0], spec[sources[0]]
    here = f"{path}.{name}"
    match name:
        case "hostPath":
            yield from host_path(source, here)
        case "nfs":
            yield from nfs(source, here)
        case "local":
            if not source["path"]:
                yield required(f"{here}.path")
            else:
                yield from field_checks.path_without_backsteps(source["path"], f"{here}.path")
            if "nodeAffinity" not in spec:
                yield required(f"{path}.nodeAffinity", "Local volume requires node affinity")
        case "csi":
            yield from csi_driver_name(source["driver"], f"{here}.driver")
            if not source["volumeHandle"]:
                yield required(f"{here}.volumeHandle")


def _other_volume_fields(spec: Tree, path: str) -> Iterator[Cause]:
    if spec.get("storageClassName"):
        yield from field_checks.dns_subdomain(spec["storageClassName"], f"{path}.storageClassName")
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        yield not_supported(f"{path}.volumeMode", mode, VOLUME_MODES)
    attributes = spec.get("volumeAttributesClassName")
    if attributes is not None:
        here = f"{path}.volumeAttributesClassName"
        if not attributes:
            yield required(here, "an empty string is disallowed")
        else:
            yield from field_checks.dns_subdomain(attributes, here)
        if "csi" not in spec:
            text = "has to be specified when using volumeAttributesClassName"
            yield required(f"{path}.csi", text)


def _source_of(spec: Tree) -> Tree:
    return {name: value for name, value in spec.items() if name not in _NOT_SOURCES}


def _volume_update(new: Tree, old: Tree) -> Iterator[Cause]:
    if _source_of(new) != _source_of(old):
        told = internal_diff("core/v1.PersistentVolumeSource", _source_of(old), _source_of(new))
        text = f"spec.persistentvolumesource is immutable after creation\n{told}"
        yield forbidden_field("spec.persistentvolumesource", text)
    yield from field_checks.immutable(new.get("volumeMode"), old.get("volumeMode"), "volumeMode")
    if "nodeAffinity" in old and new.get("nodeAffinity") != old["nodeAffinity"]:
        shown = internal_form("core/v1.VolumeNodeAffinity", new.get("nodeAffinity"))
        text = f"{field_checks.IMMUTABLE}, except for updating from beta label to GA"
        yield invalid("nodeAffinity", shown, text)


def _claim_update(new: Tree, old: Tree) -> Iterator[Cause]:
    spec, before = dict(new["spec"]), dict(old["spec"])
    if not before.get("volumeName"):
        restore_field(before, spec, "volumeName")
    beta = old["metadata"].get("annotations", {}).get(_BETA_CLASS)
    named = spec.get("storageClassName")
    if "storageClassName" not in before and named is not None and beta in (None, named):
        spec.pop("storageClassName")
    if new["status"].get("phase") == "Bound":
        resources = dict(spec["resources"])
        was = before["resources"].get("requests", {}).get("storage")
        if "requests" in resources and was is not None:
            resources["requests"] = {**resources["requests"], "storage": was}
        spec["resources"] = resources
        restore_field(spec, before, "volumeAttributesClassName")
    if spec != before:
        told = internal_diff("core/v1.PersistentVolumeClaimSpec", before, spec)
        text = (
            "spec is immutable after creation except resources.requests and "
            f"volumeAttributesClassName for bound claims\n{told}"
        )
        yield forbidden_field("spec", text)
    yield from _smaller(new, old)
    yield from field_checks.immutable(
        new["spec"].get("volumeMode"), old["spec"].get("volumeMode"), "volumeMode"
    )


def _smaller(new: Tree, old: Tree) -> Iterator[Cause]:
    size = new["spec"]["resources"].get("requests", {}).get("storage", "0")
    was = old["spec"]["resources"].get("requests", {}).get("storage", "0")
    has = old["status"].get("capacity", {}).get("storage", "0")
    if canonical_quantity.compare(size, was) < 0 and canonical_quantity.compare(size, has) <= 0:
        path = "spec.resources.requests.storage"
        yield forbidden_field(path, "field can not be less than status.capacity")


def _storage_class(obj: Tree) -> Iterator[Cause]:
    provisioner = obj["provisioner"]
    if not provisioner:
        yield required("provisioner")
    else:
        yield from field_checks.qualified_name(provisioner.lower(), "provisioner")
    if "" in obj.get("parameters", {}):
        yield invalid("parameters", "", "field can not be empty.")
    policy = obj.get("reclaimPolicy")
    if policy and policy not in ("Delete", "Retain"):
        yield not_supported("reclaimPolicy", policy, ["Delete", "Retain"])
    mode = obj.get("volumeBindingMode")
    modes = ("Immediate", "WaitForFirstConsumer")
    if mode not in modes:
        yield not_supported("volumeBindingMode", mode, modes)
    for at, term in enumerate(obj.get("allowedTopologies", ())):
        yield from _topology(term, f"allowedTopologies[{at}]")


def _topology(term: Tree, path: str) -> Iterator[Cause]:
    keys: set[str] = set()
    for at, one in enumerate(term.get("matchLabelExpressions", ())):
        here = f"{path}.matchLabelExpressions[{at}]"
        values = one["values"] or []
        if not values:
            yield required(f"{here}.values")
        seen: set[str] = set()
        for index, value in enumerate(values):
            if value in seen:
                yield duplicate(f"{here}.values[{index}]", value)
            seen.add(value)
        yield from field_checks.label_name(one["key"], f"{here}.key")
        if one["key"] in keys:
            yield duplicate(f"{here}.key", one["key"])
        keys.add(one["key"])


def _storage_class_update(new: Tree, old: Tree) -> Iterator[Cause]:
    for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
        yield from field_checks.immutable(new.get(name), old.get(name), name)


def _attachment(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    yield from csi_driver_name(spec["attacher"], "spec.attacher")
    source = spec["source"]
    by_name = source.get("persistentVolumeName")
    text = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if by_name is None and "inlineVolumeSpec" not in source:
        yield required("spec.source", text)
    elif by_name is not None and "inlineVolumeSpec" in source:
        yield forbidden_field("spec.source", text)
    elif by_name == "":
        text = "must specify non empty persistentVolumeName"
        yield required("spec.source.persistentVolumeName", text)
    yield from field_checks.dns_subdomain(spec["nodeName"], "spec.nodeName")
    if by_name is not None:
        yield from field_checks.dns_subdomain(by_name, "spec.source.persistentVolumeName")


def _attachment_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _attachment(new)
    if new["spec"] != old["spec"]:
        shown = internal_form("storage/v1.VolumeAttachmentSpec", new["spec"])
        yield invalid("spec", shown, field_checks.IMMUTABLE)


def volume_attachment_status(new: Tree, old: Tree) -> Iterator[Cause]:
    """The code of an error is not negative."""
    for name in ("attachError", "detachError"):
        code = new["status"].get(name, {}).get("errorCode")
        if code is not None and code < 0:
            text = field_checks.inclusive(0, field_checks.INT32_MAX)
            yield invalid(f"status.{name}.errorCode", code, text)


def _csi_node(obj: Tree) -> Iterator[Cause]:
    names: set[str] = set()
    for at, one in enumerate(obj["spec"]["drivers"] or ()):
        here = f"spec.drivers[{at}]"
        yield from csi_driver_name(one["name"], f"{here}.name")
        if not one["nodeID"]:
            yield required(f"{here}.nodeID")
        if len(one["nodeID"]) > 256:
            yield invalid(f"{here}.nodeID", one["nodeID"], "must be 256 characters or less")
        count = one.get("allocatable", {}).get("count")
        if count is not None:
            yield from field_checks.not_negative(count, f"{here}.allocatable.count")
        if one["name"] in names:
            yield duplicate(f"{here}.name", one["name"])
        names.add(one["name"])
        keys: set[str] = set()
        for key in one["topologyKeys"] or ():
            if not key:
                yield required(here)
            if key in keys:
                yield duplicate(here, key)
            keys.add(key)
            yield from field_checks.qualified_name(key, here)


def _csi_node_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _csi_node(new)
    before = {one["name"]: one for one in old["spec"]["drivers"] or ()}
    for one in new["spec"]["drivers"] or ():
        was = before.get(one["name"])
        if was is not None and _immutable_driver_fields(one) != _immutable_driver_fields(was):
            shown = internal_form("storage/v1.CSINodeDriver", _immutable_driver_fields(one))
            yield invalid("spec.drivers", shown, field_checks.IMMUTABLE)


def _immutable_driver_fields(driver: Tree) -> Tree:
    return {name: value for name, value in driver.items() if name != "allocatable"}


def _csi_driver(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    policies = ("File", "None", "ReadWriteOnceWithFSType")
    if spec["fsGroupPolicy"] not in policies:
        yield not_supported("spec.fsGroupPolicy", spec["fsGroupPolicy"], policies)
    audiences: set[str] = set()
    for at, one in enumerate(spec.get("tokenRequests", ())):
        here = f"spec.tokenRequests[{at}]"
        if one["audience"] in audiences:
            yield duplicate(f"{here}.audience", one["audience"])
            continue
        audiences.add(one["audience"])
        seconds = one.get("expirationSeconds")
        if seconds is not None and seconds < 600:
            text = "may not specify a duration less than 10 minutes"
            yield invalid(f"{here}.expirationSeconds", seconds, text)
    for mode in spec["volumeLifecycleModes"]:
        if mode not in ("Persistent", "Ephemeral"):
            yield not_supported("spec.volumeLifecycleModes", mode, ["Persistent", "Ephemeral"])
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        text = "must be greater than or equal to 10 seconds"
        yield invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, text)


def _csi_driver_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _csi_driver(new)
    spec, before = new["spec"], old["spec"]
    yield from field_checks.immutable(
        spec["attachRequired"], before["attachRequired"], "spec.attachedRequired"
    )
    modes = "volumeLifecycleModes"
    yield from field_checks.immutable(spec[modes], before[modes], f"spec.{modes}")


def _csi_driver_names(name: str, prefix: bool) -> list[str]:
    return subdomain_problems(name.lower(), prefix)


def _csi_capacity(obj: Tree) -> Iterator[Cause]:
    yield from field_checks.selector(obj.get("nodeTopology"), "nodeTopology")
    yield from field_checks.dns_subdomain(obj["storageClassName"], "storageClassName")
    for name in ("capacity", "maximumVolumeSize"):
        value = obj.get(name)
        if value is not None and canonical_quantity.is_negative(value):
            yield invalid(name, value, field_checks.NOT_NEGATIVE)


def _csi_capacity_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _csi_capacity(new)
    for name in ("nodeTopology", "storageClassName"):
        yield from field_checks.immutable(new.get(name), old.get(name), name)


def _attributes_class(obj: Tree) -> Iterator[Cause]:
    if not obj["driverName"]:
        yield required("driverName")
    else:
        yield from field_checks.qualified_name(obj["driverName"].lower(), "driverName")
    if not obj.get("parameters"):
        yield required("parameters", "must contain at least one key/value pair")


def _attributes_class_update(new: Tree, old: Tree) -> Iterator[Cause]:
    for name in ("driverName", "parameters"):
        yield from field_checks.immutable(new.get(name), old.get(name), name)


STORAGE_CLASS = BuiltinStrategy(_storage_class, _storage_class_update, returns_deleted=True)
VOLUME_ATTACHMENT = BuiltinStrategy(
    _attachment,
    _attachment_update,
    status={"attached": False},
    unconditional=False,
    returns_deleted=True,
)
CSI_NODE = BuiltinStrategy(_csi_node, _csi_node_update, unconditional=False, returns_deleted=True)
CSI_DRIVER = BuiltinStrategy(
    _csi_driver,
    _csi_driver_update,
    counted=("spec",),
    first=0,
    names=_csi_driver_names,
    unconditional=False,
    returns_deleted=True,
)
CSI_STORAGE_CAPACITY = BuiltinStrategy(_csi_capacity, _csi_capacity_update, unconditional=False)
VOLUME_ATTRIBUTES_CLASS = BuiltinStrategy(
    _attributes_class, _attributes_class_update, returns_deleted=True
)
