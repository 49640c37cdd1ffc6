"""CSINode.

Source: kubernetes v1.36, pkg/registry/storage, pkg/apis/storage/validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.core.volume_source import csi_driver_name
from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, invalid, required
from stowplan.apis.schema.internal_form import internal_form
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
CSINode
  +PartialObjectMetadata
  spec CSINodeSpec! -- drivers of the node.

CSINodeSpec
  drivers [CSINodeDriver]! ~merge:name -- one entry per driver.

CSINodeDriver
  name string! -- name of the driver.
  nodeID string! -- name of the node for the driver.
  topologyKeys [string]! -- node labels that say where volumes can be used.
  allocatable VolumeNodeResources? -- bounds of the driver on this node.

VolumeNodeResources
  count int32? -- volumes that can be attached at a time.
"""


def _validate(obj: Tree) -> Iterator[Cause]:
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
        yield from field_checks.unique(one["name"], names, f"{here}.name")
        keys: set[str] = set()
        for key in one["topologyKeys"] or ():
            if not key:
                yield required(here)
            yield from field_checks.unique(key, keys, here)
            yield from field_checks.qualified_name(key, here)


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _validate(new)
    before = {one["name"]: one for one in old["spec"]["drivers"] or ()}
    for one in new["spec"]["drivers"] or ():
        was = before.get(one["name"])
        if was is not None and _immutable_driver_fields(one) != _immutable_driver_fields(was):
            printed = internal_form("storage/v1.CSINodeDriver", _immutable_driver_fields(one))
            yield invalid("spec.drivers", printed, field_checks.IMMUTABLE)


def _immutable_driver_fields(driver: Tree) -> Tree:
    return {name: value for name, value in driver.items() if name != "allocatable"}


def _cells(obj: Tree, now: float) -> list[Any]:
    return [len(obj["spec"]["drivers"] or ())]


KIND = KindRegistration(
    group="storage.k8s.io",
    kind="CSINode",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(
        _validate, _validate_update, unconditional=False, returns_deleted=True
    ),
    table=PrintedTable("Name, Drivers:integer, Age", _cells),
)
