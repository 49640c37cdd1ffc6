"""Patches that expressions make: JSON patches and apply configurations, applied to an object.

Source: apiserver v1.36, pkg/admission/plugin/policy/mutating/patch: json_patch.go, smd.go;
evanphx/json-patch v4 (messages).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.resource import MergeShape, MergeStrategy, ResourceSchema
from stowplan.apis.machinery.strconv import int_or_none
from stowplan.apiserver.crd.custom_resources import CustomSchema
from stowplan.apiserver.crd.value_validation import LIST_TYPE
from stowplan.apiserver.patch.json_patch import json_patched
from stowplan.cel.libraries.moments import format_duration, format_timestamp
from stowplan.cel.values import CelDuration, CelTimestamp, MapValue, ObjectValue, OptionalValue
from stowplan.objects.encoding.tree import Tree

_ATOMIC = MergeStrategy()


class PatchError(Exception):
    """A patch that cannot be applied; the text is the original's."""


def plain_value(value: Any) -> Any:
    """A value of CEL as JSON. Raises PatchError."""
    if isinstance(value, MapValue):
        return {str(key): plain_value(one) for key, one in value.entries.values()}
    if isinstance(value, tuple):
        return [plain_value(one) for one in value]
    if isinstance(value, CelDuration):
        return format_duration(value)
    if isinstance(value, CelTimestamp):
        return format_timestamp(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, OptionalValue) and value.has_value:
        return plain_value(value.value)
    text = "JSONPath valueExpression evaluated to a type that could not marshal to JSON"
    raise PatchError(text)


def check_type_names(value: Any, path: str) -> None:
    """Types of constructed objects are named by their place. Raises PatchError."""
    problems = list(_misnamed(value, path))
    if problems:
        raise PatchError("type mismatch: " + "\n".join(problems))


def _misnamed(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, ObjectValue) and value.name != path:
        yield (
            f'unexpected type name "{value.name}", expected "{path}", which matches field name path'
            " from root Object type"
        )
    if isinstance(value, ObjectValue):
        for key, one in value.entries.values():
            yield from _misnamed(one, f"{path}.{key}")
    elif isinstance(value, MapValue):
        for _, one in value.entries.values():
            yield from _misnamed(one, path)
    elif isinstance(value, tuple):
        for one in value:
            yield from _misnamed(one, path)


# JSON patches


def json_patch_of(value: tuple[Any, ...]) -> list[Tree]:
    """The operations that an expression has made. Raises PatchError."""
    made: list[Tree] = []
    for one in value:
        held = dict(one.entries.values())
        operation: Tree = {"op": held.get("op", ""), "path": held.get("path", "")}
        if held.get("from"):
            operation["from"] = held["from"]
        if "value" in held:
            given = held["value"]
            if isinstance(given, ObjectValue):
                check_type_names(given, given.name)
            operation["value"] = plain_value(given)
        made.append(operation)
    return made


def patched_by_json(document: Tree, operations: list[Tree]) -> Tree:
    """The object after a JSON patch; unchanged where one of its tests fails. Raises PatchError."""
    made: Tree = document
    for operation in operations:
        try:
            made = json_patched(made, [operation])
        except ApiError:
            if operation["op"] == "test":
                return document
            raise PatchError(f"JSON Patch: {_failure_text(made, operation)}") from None
    return made


def webhook_patched(document: Tree, operations: list[Any]) -> Tree:
    """The object after the JSON patch of a webhook, whose tests must hold. Raises PatchError."""
    made: Tree = document
    for operation in operations:
        known = isinstance(operation, dict) and isinstance(operation.get("path"), str)
        if not known:
            raise PatchError("error decoding patch: an operation needs op and path")
        try:
            made = json_patched(made, [operation])
        except ApiError:
            if operation.get("op") == "test":
                text = f"testing value {operation['path']} failed: test failed"
                raise PatchError(text) from None
            raise PatchError(_failure_text(made, operation)) from None
    return made


def _failure_text(document: Any, operation: Tree) -> str:
    name, path = operation.get("op"), operation["path"]
    if name not in ("add", "remove", "replace", "move", "copy", "test"):
        return f"Unexpected kind: {name}"
    if name in ("move", "copy"):
        path = operation.get("from", "")
    quoted = f'"{path}"' if name in ("add", "remove") else path
    *parents, last = [_unescaped(part) for part in path.split("/")[1:]] or [""]
    found, holder = _reached(document, parents)
    if not found:
        return f"{name} operation does not apply: doc is missing path: {quoted}: missing value"
    if name == "remove" and isinstance(holder, dict):
        text = f"Unable to remove nonexistent key: {last}: missing value"
        return f"error in remove for path: '{path}': {text}"
    if isinstance(holder, list):
        text = f"Unable to access invalid index: {last}: invalid index referenced"
        return f"error in {name} for path: '{path}': {text}"
    return f"{name} operation does not apply: doc is missing key: {path}: missing value"


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _reached(document: Any, path: list[str]) -> tuple[bool, Any]:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list) and part.isdecimal():
            index = int_or_none(part)
            if index is None or index >= len(document):
                return False, None
            document = document[index]
        else:
            return False, None
    return isinstance(document, dict | list), document


# Apply configurations


class _SchemaShape:
    """A schema of a custom kind as merging sees it (`resource.MergeShape`)."""

    def __init__(self, node: Tree) -> None:
        self._node = node

    def merging(self, name: str) -> MergeStrategy | None:
        """How a field merges."""
        below = (self._node.get("properties") or {}).get(name)
        rest = self._node.get("additionalProperties")
        below = rest if below is None and isinstance(rest, dict) else below
        if below is None:
            return None
        items, kind = below.get("items"), below.get(LIST_TYPE)
        if items is None:
            return MergeStrategy(shape=_SchemaShape(below))
        keys = below.get("x-kubernetes-list-map-keys") or ()
        if kind == "map":
            return MergeStrategy(("merge",), ",".join(keys), _SchemaShape(items))
        return MergeStrategy(("merge",)) if kind == "set" else _ATOMIC


def merged_by_apply(document: Tree, applied: Tree, schema: ResourceSchema) -> Tree:
    """The object with what an apply configuration sets. Raises PatchError.

    Unproved: lists of built-in kinds merge by the keys of strategic merge, which are those of
    server-side apply for all but ports.
    """
    shape: MergeShape | None = schema.shape
    if isinstance(schema, CustomSchema):
        shape = _SchemaShape(schema.structure)
    atomic = list(_atomic_paths(applied, shape, ""))
    if atomic:
        text = f"may not mutate atomic arrays, maps or structs: {', '.join(atomic)}"
        raise PatchError(f"error applying patch: invalid ApplyConfiguration: {text}")
    return _merged(document, applied, shape)


def _how(shape: MergeShape | None, key: str) -> MergeStrategy:
    found = shape.merging(key) if shape is not None else None
    return _ATOMIC if found is None else found


def _atomic_paths(value: Tree, shape: MergeShape | None, path: str) -> Iterator[str]:
    for key, one in value.items():
        here, how = f"{path}.{key}", _how(shape, key)
        if isinstance(one, dict):
            yield from _atomic_paths(one, how.shape, here)
        elif isinstance(one, list):
            if "merge" not in how.strategies:
                yield here
            for at, item in enumerate(one):
                if isinstance(item, dict):
                    yield from _atomic_paths(item, how.shape, f"{here}[{at}]")


def _merged(live: Tree, applied: Tree, shape: MergeShape | None) -> Tree:
    made = dict(live)
    for key, one in applied.items():
        how, before = _how(shape, key), made.get(key)
        if isinstance(one, dict) and isinstance(before, dict):
            made[key] = _merged(before, one, how.shape)
        elif isinstance(one, list) and isinstance(before, list):
            made[key] = _merged_items(before, one, how)
        else:
            made[key] = one
    return made


def _merged_items(live: list[Any], applied: list[Any], how: MergeStrategy) -> list[Any]:
    if not how.key:
        return [*live, *(one for one in applied if one not in live)]
    keys = how.key.split(",")

    def identity(item: Tree) -> tuple[Any, ...]:
        return tuple(item.get(key) for key in keys)

    given = {identity(one): one for one in applied}
    made = []
    for one in live:
        other = given.pop(identity(one), None)
        made.append(one if other is None else _merged(one, other, how.shape))
    return [*made, *given.values()]
