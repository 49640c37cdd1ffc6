"""VolumeAttachment.

Source: kubernetes v1.36, pkg/registry/storage, pkg/apis/storage/validation.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.core.volume_source import csi_driver_name
from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import (
    METADATA_RESET_FIELDS,
    BuiltinStrategy,
    StatusStrategy,
    immutable_fields,
)
from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid, required
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
VolumeAttachment
  +PartialObjectMetadata
  spec VolumeAttachmentSpec!
  status VolumeAttachmentStatus

VolumeAttachmentSpec
  attacher string!
  source VolumeAttachmentSource!
  nodeName string!

VolumeAttachmentSource
  persistentVolumeName string?
  inlineVolumeSpec core.PersistentVolumeSpec?

VolumeAttachmentStatus
  attached bool!
  attachmentMetadata {string}
  attachError VolumeError?
  detachError VolumeError?

VolumeError
  time Time
  message string
  errorCode int32?
"""


def _validate(obj: Tree) -> Iterator[Cause]:
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


def _validate_status_update(new: Tree, old: Tree) -> Iterator[Cause]:
    for name in ("attachError", "detachError"):
        code = new["status"].get(name, {}).get("errorCode")
        if code is not None and code < 0:
            text = field_checks.inclusive(0, field_checks.INT32_MAX)
            yield invalid(f"status.{name}.errorCode", code, text)


KIND = KindRegistration(
    group="storage.k8s.io",
    kind="VolumeAttachment",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(
        _validate,
        immutable_fields("spec", check=_validate, printed_as="storage/v1.VolumeAttachmentSpec"),
        status={"attached": False},
        unconditional=False,
        returns_deleted=True,
    ),
    status=StatusStrategy(_validate_status_update, meta=METADATA_RESET_FIELDS),
    table=PrintedTable(
        "Name, Attacher::name=spec.attacher, PV=spec.source.persistentVolumeName, "
        "Node=spec.nodeName, Attached:boolean=status.attached, Age"
    ),
)
