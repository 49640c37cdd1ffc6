"""VolumeAttributesClass.

Source: kubernetes v1.36, pkg/registry/storage, pkg/apis/storage/validation.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, forbidden_field, required
from stowplan.apis.storage.storage_class import validate_parameters
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
    yield from validate_parameters(obj.get("parameters", {}))
    if not obj.get("parameters"):
        yield required("parameters", "must contain at least one key/value pair")


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    for name in ("driverName", "parameters"):
        if new.get(name) != old.get(name):
            yield forbidden_field(name, f"updates to {name} are forbidden.")
    yield from _validate(new)


KIND = KindRegistration(
    group="storage.k8s.io",
    kind="VolumeAttributesClass",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(_validate, _validate_update, returns_deleted=True),
    short_names=("vac",),
    table=PrintedTable("Name, DriverName=driverName, Age"),
)
