"""ControllerRevision.

Source: kubernetes v1.36, pkg/registry/apps, pkg/apis/apps/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.printing import NONE, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, immutable_fields
from stowplan.apis.machinery.errors import Cause, required
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
ControllerRevision -- an immutable snapshot of the state of a workload.
  +PartialObjectMetadata
  data JSON
  revision int64!
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    if obj["data"] is None:
        yield required("data", "data is mandatory")
    yield from field_checks.not_negative(obj["revision"], "revision")


def _cells(obj: Tree, now: float) -> list[Any]:
    owner = NONE
    for one in obj["metadata"].get("ownerReferences", ()):
        if one.get("controller"):
            group = one["apiVersion"].rpartition("/")[0]
            owner = f"{one['kind'].lower()}{'.' + group if group else ''}/{one['name']}"
    return [owner]


KIND = KindRegistration(
    group="apps",
    kind="ControllerRevision",
    types=TYPES,
    strategy=BuiltinStrategy(_validate, immutable_fields("data", check=_validate)),
    table=PrintedTable("Name, Controller, Revision=revision, Age", _cells),
)
