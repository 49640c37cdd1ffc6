"""Types of CEL for schemas of custom kinds, with the sizes that values of a schema can have.

Source: apiserver v1.36, pkg/cel/common/schemas.go, pkg/cel/types.go, pkg/cel/limits.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stowplan.apiserver.crd.rules.field_names import escaped_name
from stowplan.apiserver.crd.structural_schema import EMBEDDED
from stowplan.apiserver.crd.value_validation import INT_OR_STRING
from stowplan.cel.cel_types import BOOL, BYTES, DOUBLE, DYN, INT, STRING, CelType, cel_type
from stowplan.cel.cost_estimate import Path
from stowplan.cel.cost_range import CostRange
from stowplan.objects.encoding.tree import Tree

REQUEST_BYTES_MAX = 3 << 20
_DURATION, _TIMESTAMP = cel_type("duration"), cel_type("timestamp")
_QUOTES = 2
_BYTES_PER_CHARACTER = 4
# Of a field, its quotes, colon and comma.
_FIELD_BYTES = 4
_ENTRY_BYTES = 6


@dataclass(frozen=True)
class DeclaredType:
    """A type. n_elements_max: most characters, bytes, items or entries. json_bytes_min: of its
    shortest value. fields: of an object, by identifier. item: of a list or of the values of a
    map. is_map: its keys are strings."""

    cel: CelType
    n_elements_max: int = 0
    json_bytes_min: int = 1
    fields: Mapping[str, DeclaredType] = field(default_factory=dict)
    item: DeclaredType | None = None
    is_map: bool = False

    def at(self, path: Path) -> DeclaredType | None:
        """The type that a path leads to."""
        here: DeclaredType | None = self
        for step in path:
            if here is None:
                return None
            if step in ("@items", "@values"):
                here = here.item
            elif step == "@keys":
                here = _KEY if here.is_map else None
            else:
                here = here.fields.get(step)
        return here

    def size_of(self, path: Path) -> CostRange | None:
        """Size of what a path from a variable of this type leads to."""
        found = self.at(path[1:])
        return None if found is None else CostRange(0, found.n_elements_max)


_KEY = DeclaredType(STRING, 0, _QUOTES)
_PLAIN = {
    "boolean": DeclaredType(BOOL, 0, 4),
    "number": DeclaredType(DOUBLE),
    "integer": DeclaredType(INT),
}
_STRING: Tree = {"type": "string"}
_HEAD: Tree = {
    "kind": _STRING,
    "apiVersion": _STRING,
    "metadata": {"type": "object", "properties": {"name": _STRING, "generateName": _STRING}},
}


def with_object_head(node: Tree) -> Tree:
    """A schema of an object with kind, apiVersion, name and generateName."""
    return {**node, "properties": {**(node.get("properties") or {}), **_HEAD}}


def declared_type(node: Tree, name: str, is_root: bool) -> DeclaredType | None:
    """The type of a schema; None where it has none. name: for the type of an object."""
    if node.get(INT_OR_STRING):
        most = node.get("maxLength")
        size = REQUEST_BYTES_MAX - _QUOTES if most is None else _bytes_of(most)
        return DeclaredType(DYN, size)
    if is_root:
        node = with_object_head(node)
    kind = node.get("type", "")
    if kind == "array":
        return _list_type(node, name)
    if kind == "object":
        return _map_type(node, name) if _rest(node) is not None else _object_type(node, name)
    if kind == "string":
        return _text_type(node)
    return _PLAIN.get(kind)


def _rest(node: Tree) -> Tree | None:
    rest = node.get("additionalProperties")
    return rest if isinstance(rest, dict) else None


def _bytes_of(n_characters: int) -> int:
    return max(n_characters, 0) * _BYTES_PER_CHARACTER


def _list_type(node: Tree, name: str) -> DeclaredType | None:
    items = node.get("items")
    if not isinstance(items, dict):
        return None
    item = declared_type(items, f"{name}.@idx", bool(items.get(EMBEDDED)))
    if item is None:
        return None
    most = node.get("maxItems")
    if most is None:
        most = (REQUEST_BYTES_MAX - _QUOTES) // (item.json_bytes_min + 1)
    return DeclaredType(CelType("list", (item.cel,)), max(most, 0), 2, item=item)


def _map_type(node: Tree, name: str) -> DeclaredType | None:
    rest = _rest(node) or {}
    item = declared_type(rest, f"{name}.@elem", bool(rest.get(EMBEDDED)))
    if item is None:
        return None
    most = node.get("maxProperties")
    if most is None:
        most = (REQUEST_BYTES_MAX - _QUOTES) // (item.json_bytes_min + _ENTRY_BYTES)
    made = CelType("map", (STRING, item.cel))
    return DeclaredType(made, max(most, 0), 2, item=item, is_map=True)


def _object_type(node: Tree, name: str) -> DeclaredType:
    needed = frozenset(node.get("required") or ())
    fields: dict[str, DeclaredType] = {}
    shortest = 2
    for key, below in (node.get("properties") or {}).items():
        identifier = escaped_name(key)
        found = declared_type(below, f"{name}.{identifier}", bool(below.get(EMBEDDED)))
        if found is None:
            continue
        if identifier:
            fields[identifier] = found
        if key in needed and below.get("default") is None:
            shortest += len(key.encode()) + found.json_bytes_min + _FIELD_BYTES
    made = CelType(name, (), {key: one.cel for key, one in fields.items()})
    return DeclaredType(made, 0, shortest, fields)


def _text_type(node: Tree) -> DeclaredType:
    most, form = node.get("maxLength"), node.get("format", "")
    if form == "byte":
        size = REQUEST_BYTES_MAX - _QUOTES if most is None else max(most, 0)
        return DeclaredType(BYTES, size, _QUOTES)
    if form == "duration":
        return DeclaredType(_DURATION, 32, 3)
    if form == "date":
        return DeclaredType(_TIMESTAMP, 12, 12)
    if form == "date-time":
        return DeclaredType(_TIMESTAMP, 32, 21)
    if most is not None:
        size = _bytes_of(most)
    elif node.get("enum"):
        texts = [one for one in node["enum"] if isinstance(one, str)]
        size = max((len(one.encode()) for one in texts), default=0)
    else:
        size = REQUEST_BYTES_MAX - _QUOTES
    return DeclaredType(STRING, size, _QUOTES)
