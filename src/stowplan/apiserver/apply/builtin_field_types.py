"""Field types of the built-in kinds, from their type tables and the table of list types.

Source: kubernetes v1.36, published OpenAPI; kube-openapi schemaconv.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import msgspec

from stowplan.apis.schema.list_types import LIST_TYPES
from stowplan.apis.schema.struct_types import StructType, ValueType
from stowplan.apiserver.apply.field_types import (
    BOOLEAN,
    DEDUCED,
    NUMERIC,
    STRING,
    UNTYPED,
    UNTYPED_ATOMIC,
    FieldType,
    ListType,
    MapType,
    scalar_type,
)

_SCALARS = {"integer": NUMERIC, "number": NUMERIC, "boolean": BOOLEAN, "string": STRING}
_UNTYPED_FORMATS = ("date-time",)
_SPECIAL = {"resource.Quantity": scalar_type(UNTYPED), "runtime.RawExtension": UNTYPED_ATOMIC}


class TypeMarks(NamedTuple):
    """What the table of list types says of one type. fields: by name, what follows `=`."""

    atomic: bool
    fields: dict[str, str]


NO_MARKS = TypeMarks(False, {})


@cache
def type_marks() -> dict[str, TypeMarks]:
    """The table of list types, by full name of the type."""
    made: dict[str, TypeMarks] = {}
    for line in LIST_TYPES.replace("\n  ", " ").splitlines():
        if line:
            name, *marks = line.split()
            pairs = [mark.partition("=") for mark in marks]
            fields = {field: written for field, _, written in pairs if written}
            made[name] = TypeMarks("atomic" in marks, fields)
    return made


@cache
def struct_field_type(struct: StructType) -> FieldType:
    """The type of a struct; its fields are read when they are first needed."""
    full_name = f"{struct.package}.{struct.name}"
    marks = type_marks().get(full_name, NO_MARKS)
    return FieldType(build=partial(_build_struct, struct, marks))


def _build_struct(struct: StructType, marks: TypeMarks, made: FieldType) -> None:
    fields = {
        one.name: _marked_type(one.value, marks.fields.get(one.name, ""))
        for one in struct.fields.values()
    }
    made.map = MapType(fields, None, marks.atomic)


def _marked_type(value: ValueType, mark: str) -> FieldType:
    if value.is_list and value.item is not None:
        item = value_field_type(value.item)
        if not mark:
            return FieldType(list=ListType(item))
        keys = () if mark == "set" else _list_keys(mark)
        return FieldType(list=ListType(item, False, keys))
    if not mark:
        return value_field_type(value)
    base = value_field_type(value)
    return FieldType(build=partial(_build_override, base, mark == "atomic"))


def _build_override(base: FieldType, atomic: bool, made: FieldType) -> None:
    kind = base.resolved().map
    assert kind is not None
    made.map = MapType(kind.fields, kind.element, atomic)


def _list_keys(mark: str) -> tuple[tuple[str, Any], ...]:
    keys = []
    for written in sorted(mark.split(",")):
        name, colon, default = written.partition(":")
        value: Any = msgspec.json.decode(default) if default.isdigit() else default
        keys.append((name, value if colon else None))
    return tuple(keys)


@cache
def _map_type(item: FieldType) -> FieldType:
    return FieldType(map=MapType(element=item))


@cache
def _list_type(item: FieldType) -> FieldType:
    return FieldType(list=ListType(item))


def value_field_type(value: ValueType) -> FieldType:
    """The type of a value of a built-in kind, without marks of the field that holds it."""
    if value.is_list and value.item is not None:
        return _list_type(value_field_type(value.item))
    if value.is_map and value.item is not None:
        return _map_type(value_field_type(value.item))
    if value.shape is not None and value.openapi:
        return struct_field_type(value.shape)
    return _scalar_field_type(value)


def _scalar_field_type(value: ValueType) -> FieldType:
    special = _SPECIAL.get(value.go)
    if special is not None:
        return special
    openapi = value.openapi
    name = _SCALARS.get(openapi.get("type", ""))
    if name is None or "oneOf" in openapi:
        return DEDUCED
    return scalar_type(UNTYPED if openapi.get("format") in _UNTYPED_FORMATS else name)
