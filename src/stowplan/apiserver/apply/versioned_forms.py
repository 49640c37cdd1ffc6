"""The forms of a stored object in the versions of its kind, with their field types.

Source: apimachinery v0.36, util/managedfields/internal/versionconverter.go.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from stowplan.apis.machinery.resource import Resource, ResourceRegistry
from stowplan.apis.schema import KindSchema
from stowplan.apis.schema.struct_types import StructType
from stowplan.apiserver.apply.builtin_field_types import struct_field_type
from stowplan.apiserver.apply.custom_field_types import custom_field_type
from stowplan.apiserver.apply.field_types import DEDUCED, FieldType
from stowplan.apiserver.crd.custom_resources import CustomSchema
from stowplan.objects.encoding.tree import Tree

_types: WeakKeyDictionary[Resource, FieldType] = WeakKeyDictionary()
_blanks: WeakKeyDictionary[Resource, Tree] = WeakKeyDictionary()


def field_type(resource: Resource) -> FieldType:
    """The field type of the objects of a resource."""
    found = _types.get(resource)
    if found is None:
        found = _types[resource] = schema_field_type(resource.schema)
    return found


def schema_field_type(schema: Any) -> FieldType:
    """The field type of a schema."""
    if isinstance(schema, KindSchema):
        return struct_field_type(schema.struct)
    return custom_field_type(schema.structure) if isinstance(schema, CustomSchema) else DEDUCED


def empty_object(resource: Resource) -> Tree:
    """The object that a creation starts from: what Go writes of a kind without values.

    It must not be changed.
    """
    found = _blanks.get(resource)
    if found is None:
        schema = resource.schema
        found = _empty_struct(schema.struct) if isinstance(schema, KindSchema) else {}
        found |= {"kind": resource.kind, "apiVersion": resource.api_version}
        _blanks[resource] = found
    return found


def _empty_struct(struct: StructType) -> Tree:
    made: Tree = {}
    for one in struct.fields.values():
        if not one.always:
            continue
        value = one.value
        single = value.shape is not None and not (value.is_list or value.is_map or one.pointer)
        if single and not value.plain and value.shape is not None:
            made[one.name] = _empty_struct(value.shape)
        else:
            made[one.name] = None if one.pointer else value.zero()
    return made


class VersionedForms:
    """The forms of objects of one kind. resource: of the request.

    Objects are given in their stored form.
    """

    def __init__(self, registry: ResourceRegistry, resource: Resource) -> None:
        self._registry = registry
        self.resource = resource
        self._others: dict[str, Resource] | None = None

    def find(self, api_version: str) -> Resource | None:
        """The resource of another version; None if it is not served."""
        if api_version == self.resource.api_version:
            return self.resource
        if self._others is None:
            path = self.resource.path
            self._others = {r.api_version: r for r in self._registry.all() if r.path == path}
        return self._others.get(api_version)


def served_form(resource: Resource, obj: Tree) -> Tree:
    """A stored object as a resource serves it."""
    return obj if resource.alias is None else resource.alias.from_stored(obj)


def _filled(obj: Tree, empty: Tree) -> Tree:
    """An object with the fields that Go always writes: conversions are between Go's structs."""
    out = {**empty, **obj}
    for key, below in empty.items():
        if isinstance(below, dict) and isinstance(out[key], dict):
            out[key] = _filled(out[key], below)
    return out


def stored_form(resource: Resource, obj: Tree) -> Tree:
    """An object of a resource as it is stored."""
    if resource.alias is None:
        return obj
    return resource.alias.to_stored(_filled(obj, empty_object(resource)))
