"""Field types of custom kinds, from the schemas of their definitions.

Source: apiextensions-apiserver v0.36, pkg/controller/openapi/builder; kube-openapi schemaconv.
"""

from __future__ import annotations

from typing import Any

from stowplan.apis.schema import type_tables
from stowplan.apiserver.apply.builtin_field_types import struct_field_type
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
from stowplan.objects.encoding.tree import Tree

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_SCALARS = {"integer": NUMERIC, "number": NUMERIC, "boolean": BOOLEAN}


def custom_field_type(structure: Tree) -> FieldType:
    """The type of the objects of a custom kind, metadata included."""
    return _field_type({**structure, "type": "object"}, False, True)


def _field_type(node: Tree, preserve: bool, whole: bool = False) -> FieldType:
    """The type of a schema node. preserve: an outer node keeps unknown fields. whole: the value has
    apiVersion, kind and metadata."""
    preserve = preserve or node.get(_PRESERVE) is True
    kind = node.get("type", "")
    if kind == "object":
        return FieldType(map=_map_type(node, preserve, whole))
    if kind == "array":
        return FieldType(list=_list_type(node, preserve))
    if kind in _SCALARS:
        return scalar_type(_SCALARS[kind])
    if kind == "string":
        plain = node.get("format", "") in ("", "byte")
        return scalar_type(STRING if plain else UNTYPED)
    return FieldType(UNTYPED, _list_type(node, preserve), _map_type(node, preserve, whole))


def _map_type(node: Tree, preserve: bool, whole: bool) -> MapType:
    fields = {
        name: _field_type(below, preserve) for name, below in (node.get("properties") or {}).items()
    }
    if whole or node.get("x-kubernetes-embedded-resource"):
        fields["apiVersion"] = fields["kind"] = scalar_type(STRING)
        fields["metadata"] = struct_field_type(type_tables.struct("meta/v1.ObjectMeta"))
    atomic = node.get("x-kubernetes-map-type") == "atomic"
    return MapType(fields, _element_type(node, preserve, bool(fields)), atomic)


def _element_type(node: Tree, preserve: bool, declared: bool) -> FieldType | None:
    rest = node.get("additionalProperties")
    if rest is None:
        return DEDUCED if preserve or not declared else None
    if isinstance(rest, dict):
        return _field_type(rest, preserve)
    return DEDUCED if rest else None


def _list_type(node: Tree, preserve: bool) -> ListType:
    items: Any = node.get("items")
    element = _field_type(items, preserve) if isinstance(items, dict) else UNTYPED_ATOMIC
    kind = node.get("x-kubernetes-list-type", "atomic")
    if kind == "atomic":
        return ListType(element)
    properties = (items or {}).get("properties") or {}
    names = sorted(node.get("x-kubernetes-list-map-keys") or ()) if kind == "map" else ()
    keys = tuple((name, (properties.get(name) or {}).get("default")) for name in names)
    return ListType(element, False, keys)
