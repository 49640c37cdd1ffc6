"""StorageClass.

Source: kubernetes v1.36, pkg/registry/storage, pkg/apis/storage/validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, immutable_fields
from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
)
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
VolumeBindingMode = string

StorageClass -- a class of dynamically provisioned volumes.
  +PartialObjectMetadata
  provisioner string! -- who makes the volumes.
  parameters {string} -- parameters for the provisioner.
  reclaimPolicy core.PersistentVolumeReclaimPolicy? =Delete -- Delete or Retain.
  mountOptions [string] -- options of the mounts.
  allowVolumeExpansion bool? -- claims may grow.
  volumeBindingMode VolumeBindingMode? =Immediate -- Immediate, or WaitForFirstConsumer.
  allowedTopologies [core.TopologySelectorTerm] -- where volumes may be made.
"""


_PARAMETERS_MAX, _PARAMETERS_BYTES_MAX = 512, 256 << 10


def _validate(obj: Tree) -> Iterator[Cause]:
    provisioner = obj["provisioner"]
    if not provisioner:
        yield required("provisioner")
    else:
        yield from field_checks.qualified_name(provisioner.lower(), "provisioner")
    yield from validate_parameters(obj.get("parameters", {}))
    policy = obj.get("reclaimPolicy")
    if policy and policy not in ("Delete", "Retain"):
        yield not_supported("reclaimPolicy", policy, ["Delete", "Retain"])
    mode = obj.get("volumeBindingMode")
    modes = ("Immediate", "WaitForFirstConsumer")
    yield from field_checks.one_of(mode, modes, "volumeBindingMode")
    topologies = obj.get("allowedTopologies", ())
    # The original compares with as many empty terms as there are terms, too.
    known: list[dict[str, set[str]]] = [{}] * len(topologies)
    for at, term in enumerate(topologies):
        path = f"allowedTopologies[{at}]"
        yield from _validate_topology_term(term, path)
        one = {e["key"]: set(e["values"] or ()) for e in term.get("matchLabelExpressions", ())}
        for _ in range(known.count(one)):
            yield duplicate(f"{path}.matchLabelExpressions", "")
        known.append(one)


def validate_parameters(parameters: Tree) -> Iterator[Cause]:
    """Parameters of a class: their number, size, and names."""
    if len(parameters) > _PARAMETERS_MAX:
        yield too_long("parameters", _PARAMETERS_MAX)
        return
    if "" in parameters:
        yield invalid("parameters", "", "field can not be empty.")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items())
    if size > _PARAMETERS_BYTES_MAX:
        yield too_long("parameters", _PARAMETERS_BYTES_MAX)


def _validate_topology_term(term: Tree, path: str) -> Iterator[Cause]:
    keys: set[str] = set()
    for at, one in enumerate(term.get("matchLabelExpressions", ())):
        here = f"{path}.matchLabelExpressions[{at}]"
        values = one["values"] or []
        if not values:
            yield required(f"{here}.values")
        seen: set[str] = set()
        for index, value in enumerate(values):
            yield from field_checks.unique(value, seen, f"{here}.values[{index}]")
        yield from field_checks.label_name(one["key"], f"{here}.key")
        yield from field_checks.unique(one["key"], keys, f"{here}.key")


def _cells(obj: Tree, now: float) -> list[Any]:
    annotations = obj["metadata"].get("annotations", {})
    default = any(
        annotations.get(f"storageclass.{infix}kubernetes.io/is-default-class") == "true"
        for infix in ("", "beta.")
    )
    name = obj["metadata"].get("name", "") + (" (default)" if default else "")
    return [name, bool(obj.get("allowVolumeExpansion"))]


KIND = KindRegistration(
    group="storage.k8s.io",
    kind="StorageClass",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(
        _validate,
        immutable_fields("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
        returns_deleted=True,
    ),
    short_names=("sc",),
    table=PrintedTable(
        "Name=, Provisioner=provisioner, ReclaimPolicy=reclaimPolicy|Delete, "
        "VolumeBindingMode=volumeBindingMode|Immediate, "
        "AllowVolumeExpansion, Age",
        _cells,
    ),
)
