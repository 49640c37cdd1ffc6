"""StorageClass.

Source: kubernetes v1.36, pkg/registry/storage, pkg/apis/storage/validation,
pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, duplicate, invalid, not_supported, required
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
VolumeBindingMode = string

StorageClass -- a class of dynamically provisioned volumes.
  +PartialObjectMetadata
  provisioner string!
  parameters {string}
  reclaimPolicy core.PersistentVolumeReclaimPolicy? =Delete
  mountOptions [string]
  allowVolumeExpansion bool?
  volumeBindingMode VolumeBindingMode? =Immediate
  allowedTopologies [core.TopologySelectorTerm]
"""


def _validate(obj: Tree) -> Iterator[Cause]:
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
        yield from _validate_topology_term(term, f"allowedTopologies[{at}]")


def _validate_topology_term(term: Tree, path: str) -> Iterator[Cause]:
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


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
        yield from field_checks.immutable(new.get(name), old.get(name), name)


def _cells(obj: Tree, now: float) -> list[Any]:
    annotations = obj["metadata"].get("annotations", {})
    default = any(
        annotations.get(f"storageclass.{infix}kubernetes.io/is-default-class") == "true"
        for infix in ("", "beta.")
    )
    return [obj["metadata"].get("name", "") + (" (default)" if default else "")]


KIND = KindRegistration(
    group="storage.k8s.io",
    kind="StorageClass",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(_validate, _validate_update, returns_deleted=True),
    short_names=("sc",),
    table=PrintedTable(
        "Name=, Provisioner=provisioner, ReclaimPolicy=reclaimPolicy|Delete, "
        "VolumeBindingMode=volumeBindingMode|Immediate, "
        "AllowVolumeExpansion=allowVolumeExpansion, Age",
        _cells,
    ),
)
