"""Structural schemas of custom kinds: pruning and defaulting.

A schema is the JSON tree of the definition; these functions walk it along with an object.

Source: apiextensions-apiserver v0.36, pkg/apiserver/schema: pruning and defaulting.
"""

from __future__ import annotations

import copy
from typing import Any

from stowplan.objects.encoding.tree import Tree

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
EMBEDDED_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
NO_SCHEMA: Tree = {}


def sub_schema(node: Tree, key: str) -> tuple[bool, Tree | None]:
    """True and the schema of a known field; the schema is None if its content is unknown."""
    found = (node.get("properties") or NO_SCHEMA).get(key)
    if found is not None:
        return True, found
    rest = node.get("additionalProperties")
    if rest is None or rest is False:
        return False, None
    return True, rest if isinstance(rest, dict) else None


def prune_unknown(value: Any, node: Tree | None, root: bool, unknown: list[str]) -> Any:
    """A copy without unknown fields, whose paths are added to `unknown`."""
    return _pruned(value, node if node is not None else NO_SCHEMA, "", unknown, root)


def _pruned(value: Any, node: Tree | None, path: str, unknown: list[str], whole: bool) -> Any:
    if node is not None and node.get(PRESERVE):
        return _copied_with_unknown(value, node, path, unknown, whole)
    if isinstance(value, dict):
        return _pruned_object(value, node, path, unknown, whole)
    if isinstance(value, list):
        items = node.get("items") if node is not None else None
        return [
            _pruned(one, items, f"{path}[{at}]", unknown, False) for at, one in enumerate(value)
        ]
    return value


def _pruned_object(
    value: Tree, node: Tree | None, path: str, unknown: list[str], whole: bool
) -> Tree:
    out: Tree = {}
    whole = whole or bool(node is not None and node.get(EMBEDDED))
    for key, one in value.items():
        here = f"{path}.{key}" if path else key
        if whole and key in EMBEDDED_FIELDS:
            out[key] = copy.deepcopy(one)
            continue
        known, below = sub_schema(node, key) if node is not None else (False, None)
        if known:
            out[key] = _pruned(one, below, here, unknown, False)
        elif key not in EMBEDDED_FIELDS or path:
            unknown.append(here)
    return out


def _copied_with_unknown(
    value: Any, node: Tree | None, path: str, unknown: list[str], whole: bool
) -> Any:
    """As `_pruned`, where unknown fields stay."""
    if node is None:
        return copy.deepcopy(value)
    if isinstance(value, dict):
        whole = whole or bool(node.get(EMBEDDED))
        out: Tree = {}
        for key, one in value.items():
            known, below = sub_schema(node, key)
            if known and not (whole and key in EMBEDDED_FIELDS):
                here = f"{path}.{key}" if path else key
                out[key] = _pruned(one, below, here, unknown, False)
            else:
                out[key] = copy.deepcopy(one)
        return out
    if isinstance(value, list):
        items = node.get("items")
        return [
            _copied_with_unknown(one, items, f"{path}[{at}]", unknown, False)
            for at, one in enumerate(value)
        ]
    return value


class TooManyDefaults(ValueError):
    """The defaults of a schema exceed the size of an object."""


class DefaultingBudget:
    """Budget of values visited and added: many small items may each get large defaults."""

    def __init__(self, left: float) -> None:
        self.left = left

    def spend(self, count: int) -> None:
        """Raises TooManyDefaults when it is used up."""
        self.left -= count
        if self.left < 0:
            raise TooManyDefaults("the defaults of the schema add too many values")

    def copied(self, value: Any) -> Any:
        """A copy of a default; each value counts."""
        self.spend(_COPY_STEPS)
        if isinstance(value, dict):
            return {key: self.copied(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.copied(one) for one in value]
        return value


DEFAULTING_STEPS_MAX = 1_000_000
_COPY_STEPS = 10


def set_defaults(value: Any, node: Tree | None, steps: DefaultingBudget) -> None:
    """Set the defaults of missing fields, and of nulls where null is not allowed.

    Raises TooManyDefaults.
    """
    if node is None:
        return
    if isinstance(value, dict):
        properties = node.get("properties") or NO_SCHEMA
        steps.spend(len(properties))
        for key, below in properties.items():
            if "default" in below and (key not in value or _wrong_null(value[key], below)):
                value[key] = steps.copied(below["default"])
        for key, one in value.items():
            _, below = sub_schema(node, key)
            if below is not None and "default" in below and _wrong_null(one, below):
                value[key] = one = steps.copied(below["default"])
            set_defaults(one, below, steps)
    elif isinstance(value, list):
        items = node.get("items")
        for at, one in enumerate(value):
            if items is not None and "default" in items and _wrong_null(one, items):
                value[at] = steps.copied(items["default"])
            set_defaults(value[at], items, steps)


def drop_nulls(value: Any, node: Tree | None) -> None:
    """Drop nulls of fields that are not nullable."""
    if node is None:
        return
    if isinstance(value, dict):
        for key in list(value):
            _, below = sub_schema(node, key)
            if below is not None and _wrong_null(value[key], below):
                del value[key]
            else:
                drop_nulls(value[key], below)
    elif isinstance(value, list):
        for one in value:
            drop_nulls(one, node.get("items"))


def _wrong_null(value: Any, node: Tree) -> bool:
    return value is None and not node.get("nullable")
