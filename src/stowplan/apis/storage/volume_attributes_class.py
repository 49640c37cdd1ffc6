"""VolumeAttributesClass.

Source: kubernetes v1.36, pkg/registry/storage, pkg/apis/storage/validation.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, immutable_fields
from stowplan.apis.machinery.errors import Cause, required
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
VolumeAttributesClass
  +PartialObjectMetadata
  driverName string!
  parameters {string}
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    if not obj["driverName"]:
        yield required("driverName")
    else:
        yield from field_checks.qualified_name(obj["driverName"].lower(), "driverName")
    if not obj.get("parameters"):
        yield required("parameters", "must contain at least one key/value pair")


KIND = KindRegistration(
    group="storage.k8s.io",
    kind="VolumeAttributesClass",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(
        _validate, immutable_fields("driverName", "parameters"), returns_deleted=True
    ),
    short_names=("vac",),
    table=PrintedTable("Name, DriverName=driverName, Age"),
)
