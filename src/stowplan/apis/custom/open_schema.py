"""Schemas of CustomResourceDefinitions, made of type tables.

Differs: nothing but types is in them. Bounds and words that are allowed are checked by
`custom_kinds`, for files as well.

Source: the form that controller-gen gives Go types.
"""

from __future__ import annotations

from stowplan.apis.schema.struct_types import StructType, ValueType
from stowplan.objects.encoding.tree import Tree

PRESERVE = "x-kubernetes-preserve-unknown-fields"
_HEAD = ("apiVersion", "kind", "metadata")
_QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_INT_OR_STRING: Tree = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_BY_GO_TYPE: dict[str, Tree] = {
    "resource.Quantity": {**_INT_OR_STRING, "pattern": _QUANTITY},
    "intstr.IntOrString": _INT_OR_STRING,
}
UNCHECKED = ("core/v1.PodTemplateSpec", "batch/v1.JobTemplateSpec")
"""Types whose objects are checked when pods are created of them."""


def object_schema(struct: StructType) -> Tree:
    """`openAPIV3Schema` of a kind; what has the type `JSON` or is a template of pods or a status
    keeps every field."""
    head = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    return {
        "type": "object",
        "properties": {**head, "metadata": {"type": "object"}, **_properties(struct, _HEAD)},
    }


def _properties(
    struct: StructType, left_out: tuple[str, ...] = (), *, is_open: bool = False
) -> Tree:
    return {
        name: _value_schema(one.value, is_open=is_open)
        for name, one in struct.fields.items()
        if name not in left_out
    }


def _object_schema(struct: StructType, *, is_open: bool) -> Tree:
    made: Tree = {"type": "object", "properties": _properties(struct, is_open=is_open)}
    return {**made, PRESERVE: True} if is_open else made


def _value_schema(value: ValueType, *, is_open: bool = False) -> Tree:
    """is_open: unknown fields are kept."""
    if value.known is not None:
        return _object_schema(value.known, is_open=True)
    if value.item is not None and value.is_list:
        return {"type": "array", "items": _value_schema(value.item, is_open=is_open)}
    if value.item is not None and value.is_map:
        return {
            "type": "object",
            "additionalProperties": _value_schema(value.item, is_open=is_open),
        }
    shape = value.shape
    if shape is not None:
        if f"{shape.package}.{shape.name}" in UNCHECKED:
            return {"type": "object", PRESERVE: True}
        return _object_schema(shape, is_open=is_open)
    found = _BY_GO_TYPE.get(value.go)
    if found is not None:
        return found
    # `JSON` and `Object` have no schema of what is inside.
    scalar = dict(value.openapi)
    return scalar if scalar.get("type") not in (None, "object") else {**scalar, PRESERVE: True}
