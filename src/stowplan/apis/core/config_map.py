"""ConfigMap.

Source: kubernetes v1.36, pkg/registry/core/configmap, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import TOO_LONG, Cause, forbidden_field, invalid
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
ConfigMap -- configuration data.
  +PartialObjectMetadata
  immutable bool?
  data {string}
  binaryData {bytes}
"""
DATA_BYTES_MAX = 1 << 20


def _validate(obj: Tree) -> Iterator[Cause]:
    data, binary = obj.get("data", {}), obj.get("binaryData", {})
    size = 0
    for key, value in sorted(data.items()):
        yield from field_checks.config_key(key, f"data[{key}]")
        if key in binary:
            yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        size += len(value.encode("utf-8", "surrogatepass"))
    for key, value in sorted(binary.items()):
        yield from field_checks.config_key(key, f"binaryData[{key}]")
        size += len(value) * 3 // 4
    if size > DATA_BYTES_MAX:
        yield Cause("", TOO_LONG, f"Too long: may not be more than {DATA_BYTES_MAX} bytes")


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """An immutable config map keeps its data."""
    if old.get("immutable"):
        yield from validate_still_immutable(new)
        for name in ("data", "binaryData"):
            if new.get(name) != old.get(name):
                yield forbidden_field(name, "field is immutable when `immutable` is set")
    yield from _validate(new)


def validate_still_immutable(new: Tree) -> Iterator[Cause]:
    """`immutable` cannot be unset."""
    if not new.get("immutable"):
        yield forbidden_field("immutable", "field is immutable when `immutable` is set")


def _cells(obj: Tree, now: float) -> list[Any]:
    n_data = len(obj.get("data", ())) + len(obj.get("binaryData", ()))
    return [n_data]


KIND = KindRegistration(
    kind="ConfigMap",
    types=TYPES,
    strategy=BuiltinStrategy(_validate, _validate_update),
    short_names=("cm",),
    table=PrintedTable("Name, Data, Age", _cells),
)
