"""Nulls in lists of objects of other projects: a definition of theirs refuses them.

The decoders of the type tables take them as empty values, as Go does for built-in kinds; a null
field is as one that is missing everywhere.

Source: apiextensions-apiserver v0.36, pkg/apiserver/validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.custom.open_schema import UNCHECKED
from stowplan.apis.schema.scalar_decoders import FieldLocation, TypeMismatch, type_mismatch
from stowplan.apis.schema.struct_types import StructType, ValueType


def null_items(struct: StructType, tree: Any, at: FieldLocation = None) -> Iterator[TypeMismatch]:
    """The nulls in lists of an object of a type; values of wrong types are passed over."""
    if not isinstance(tree, dict) or f"{struct.package}.{struct.name}" in UNCHECKED:
        return
    for name, given in tree.items():
        field = struct.fields.get(name)
        if field is not None and (at is not None or name != "metadata"):
            yield from _of_value(field.value, given, (at, name, struct.name))


def _of_value(value: ValueType, given: Any, at: FieldLocation) -> Iterator[TypeMismatch]:
    item = value.item
    if item is not None and value.is_list and isinstance(given, list):
        for place, one in enumerate(given):
            here = (at, place, "")
            # A schema without a type takes every value.
            if one is None and item.openapi:
                yield type_mismatch(None, here, item.go)
            yield from _of_value(item, one, here)
    elif item is not None and value.is_map and isinstance(given, dict):
        for key, one in given.items():
            yield from _of_value(item, one, (at, (key,), ""))
    elif value.shape is not None:
        yield from null_items(value.shape, given, at)
