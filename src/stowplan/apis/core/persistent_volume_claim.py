"""PersistentVolumeClaim.

Source: kubernetes v1.36, pkg/registry/core/persistentvolumeclaim, pkg/apis/core/validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.core.persistent_volume import short_access_modes, storage_class_of
from stowplan.apis.core.volume_claim_spec import volume_claim_spec
from stowplan.apis.kind.printing import UNSET, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import StatusStrategy, restore_field
from stowplan.apis.machinery.errors import Cause, forbidden_field
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy
from stowplan.apis.schema import canonical_quantity
from stowplan.apis.schema.internal_form import internal_diff
from stowplan.apis.validation import field_checks, resource_requirements
from stowplan.objects.encoding.tree import Tree

TYPES = """
PersistentVolumeClaimConditionType ClaimResourceStatus = string
PersistentVolumeClaimModifyVolumeStatus PersistentVolumeClaimPhase = string

PersistentVolumeClaim -- a request for storage.
  +PartialObjectMetadata
  spec PersistentVolumeClaimSpec -- desired state.
  status PersistentVolumeClaimStatus -- last observed state.

PersistentVolumeClaimStatus
  phase PersistentVolumeClaimPhase -- Pending, Bound or Lost.
  accessModes [PersistentVolumeAccessMode] -- modes of the volume.
  capacity ResourceList -- size of the volume.
  conditions [PersistentVolumeClaimCondition] ~merge:type
  allocatedResources ResourceList
  allocatedResourceStatuses {ClaimResourceStatus}
  currentVolumeAttributesClassName string?
  modifyVolumeStatus ModifyVolumeStatus?

ModifyVolumeStatus
  targetVolumeAttributesClassName string
  status PersistentVolumeClaimModifyVolumeStatus!

PersistentVolumeClaimCondition
  type PersistentVolumeClaimConditionType!
  status ConditionStatus!
  lastProbeTime Time
  +ConditionChange
"""
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_OLD_SOURCES = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def _set_defaults(one: Tree) -> None:
    one["status"].setdefault("phase", "Pending")


class PersistentVolumeClaimStrategy(ResourceStrategy):
    """PersistentVolumeClaim."""

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
        yield from _validate_update(new, old)


def _validate_status_update(new: Tree, old: Tree) -> Iterator[Cause]:
    for name, value in sorted(new["status"].get("capacity", {}).items()):
        yield from resource_requirements.validate_resource_quantity(
            name, value, f"status.capacity[{name}]"
        )


def _drop_unsupported_data_source(spec: Tree, old: Tree) -> None:
    """Drop a dataSource that is neither a claim nor a snapshot."""
    if "dataSource" in old or "dataSourceRef" in old or "dataSourceRef" in spec:
        return
    one = spec.get("dataSource")
    if one is not None and (one.get("apiGroup") or "", one["kind"]) not in _OLD_SOURCES:
        del spec["dataSource"]


def _normalize_data_source(spec: Tree) -> None:
    """Fill dataSourceRef from dataSource and the reverse."""
    one, other = spec.get("dataSource"), spec.get("dataSourceRef")
    if one is not None and other is None:
        spec["dataSourceRef"] = dict(one)
    elif other is not None and one is None and not other.get("namespace"):
        spec["dataSource"] = {key: value for key, value in other.items() if key != "namespace"}


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
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
        diff = internal_diff("core/v1.PersistentVolumeClaimSpec", before, spec)
        text = (
            "spec is immutable after creation except resources.requests and "
            f"volumeAttributesClassName for bound claims\n{diff}"
        )
        yield forbidden_field("spec", text)
    yield from _validate_size_update(new, old)
    yield from field_checks.immutable(
        new["spec"].get("volumeMode"), old["spec"].get("volumeMode"), "volumeMode"
    )


def _validate_size_update(new: Tree, old: Tree) -> Iterator[Cause]:
    size = new["spec"]["resources"].get("requests", {}).get("storage", "0")
    was = old["spec"]["resources"].get("requests", {}).get("storage", "0")
    has = old["status"].get("capacity", {}).get("storage", "0")
    if canonical_quantity.compare(size, was) < 0 and canonical_quantity.compare(size, has) <= 0:
        path = "spec.resources.requests.storage"
        yield forbidden_field(path, "field can not be less than status.capacity")


def _cells(obj: Tree, now: float) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    bound = bool(spec.get("volumeName"))
    deleting = obj["metadata"].get("deletionTimestamp")
    return [
        "Terminating" if deleting else status.get("phase", ""),
        status.get("capacity", {}).get("storage", "0") if bound else "",
        short_access_modes(status.get("accessModes", [])) if bound else "",
        storage_class_of(obj),
    ]


KIND = KindRegistration(
    kind="PersistentVolumeClaim",
    types=TYPES,
    defaults={"core/v1.PersistentVolumeClaim": _set_defaults},
    strategy=PersistentVolumeClaimStrategy(),
    status=StatusStrategy(_validate_status_update),
    short_names=("pvc",),
    table=PrintedTable(
        "Name, Status, Volume=spec.volumeName, Capacity, Access Modes, StorageClass, "
        f"VolumeAttributesClass=spec.volumeAttributesClassName|{UNSET}, Age, "
        f"VolumeMode+=spec.volumeMode|{UNSET}",
        _cells,
    ),
)
