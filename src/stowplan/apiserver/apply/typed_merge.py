"""A configuration laid over an object, and removal of fields from an object.

Source: structured-merge-diff v6, typed: merge.go, remove.go, reconcile_schema.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stowplan.apiserver.apply.field_set import (
    SELF,
    FieldSet,
    is_member,
    recursive_difference,
    set_of_path,
    union,
)
from stowplan.apiserver.apply.field_types import UNTYPED, FieldType, ListType, MapType
from stowplan.apiserver.apply.typed_value import ABSENT, atom_of, item_element
from stowplan.objects.encoding.tree import Tree


def merged(old: Any, given: Any, kind: FieldType) -> Any:
    """The value `old` with `given` laid over it. Parts of both may be shared with the result."""
    if given is ABSENT or old is ABSENT:
        return old if given is ABSENT else given
    atom = atom_of(kind, given)
    if isinstance(atom, str) or atom.atomic:
        return given
    shape = dict if isinstance(atom, MapType) else list
    had = old if isinstance(old, shape) else shape()
    over = given if isinstance(given, shape) else shape()
    if not had and not over:
        return given
    if isinstance(atom, MapType):
        return _merged_maps(atom, had, over)
    return _merged_lists(atom, had, over)


def _merged_maps(kind: MapType, old: Any, given: Any) -> Tree:
    out = dict(old)
    for key, one in given.items():
        of = kind.of_key(key)
        out[key] = one if of is None else merged(old.get(key, ABSENT), one, of)
    return out


def _merged_lists(kind: ListType, old: Any, given: Any) -> list[Any]:
    """The items of both: those of `given` in its order, others before the next shared one."""
    of_old, of_given = ([item_element(kind, item) for item in one] for one in (old, given))
    had = _observed(of_old, old)
    over = dict(zip(of_given, given, strict=True))
    shared = iter([element for element in of_given if element in had])
    following = next(shared, None)
    done: set[str] = set()
    out: list[Any] = []
    left = right = 0

    def emit(element: str) -> None:
        done.add(element)
        out.append(merged(had.get(element, ABSENT), over[element], kind.element))

    while left < len(of_old) or right < len(of_given):
        at = of_old[left] if left < len(of_old) else None
        if at is not None and right < len(of_given):
            if at == of_given[right]:
                emit(at)
                left, right, following = left + 1, right + 1, next(shared, None)
                continue
            if at in over and following is not None and following != at:
                left += 1
                continue
        if at is not None:
            if at not in over:
                out.append(old[left])
                left += 1
                continue
            if at in done:
                left += 1
        if right < len(of_given):
            element = of_given[right]
            emit(element)
            right += 1
            if element == following:
                following = next(shared, None)
    return out


def _observed(elements: Iterable[str], items: list[Any]) -> dict[str, Any]:
    """The items by element; null for one that is stored twice, so that it is replaced."""
    found: dict[str, Any] = {}
    for element, item in zip(elements, items, strict=True):
        found[element] = None if element in found else item
    return found


def without_fields(value: Any, fields: FieldSet, kind: FieldType) -> Any:
    """The value without the fields of a set; null if nothing is left of it."""
    atom = atom_of(kind, value)
    if isinstance(atom, str):
        return value
    shape = dict if isinstance(atom, MapType) else list
    if not isinstance(value, shape) or not value or atom.atomic:
        return None
    if isinstance(atom, MapType):
        return _map_without(value, fields, atom)
    return _list_without(value, fields, atom)


def _map_without(value: Any, fields: FieldSet, kind: MapType) -> Any:
    out: Tree = {}
    matched = False
    for key, one in value.items():
        node = fields.get(f"f:{key}")
        if node is None:
            out[key] = one
        elif not is_member(node):
            matched = True
            of = kind.of_key(key)
            out[key] = _reduced(one, node, of)
    return out if out or matched else None


def _reduced(value: Any, node: FieldSet, kind: FieldType | None) -> Any:
    """A value without fields below it; an empty container stays one."""
    left = value if kind is None else without_fields(value, node, kind)
    if left is None and isinstance(value, (dict, list)):
        return type(value)()
    return left


def _list_without(value: Any, fields: FieldSet, kind: ListType) -> Any:
    out: list[Any] = []
    matched = False
    for item in value:
        node = fields.get(item_element(kind, item))
        if node is None:
            out.append(item)
        elif not is_member(node):
            matched = True
            out.append(_reduced(item, node, kind.element))
    return out if out or matched else None


# A schema that has changed


def under_schema(fields: FieldSet, kind: FieldType) -> FieldSet:
    """A set that was written under another schema: paths below what is atomic now become its path.

    What was atomic and is granular now keeps its path.
    """
    found: list[tuple[str, ...]] = []
    _find_atomic(fields, kind, (), False, found)
    for path in found:
        one = set_of_path(path)
        fields = union(recursive_difference(fields, one), one)
    return fields


def _find_atomic(
    fields: FieldSet | None,
    kind: FieldType,
    path: tuple[str, ...],
    leaf: bool,
    found: list[tuple[str, ...]],
) -> None:
    """Collect the paths of what is atomic but has paths below. leaf: the path is a member only."""
    kind = kind.resolved()
    atom = kind.map or kind.scalar or kind.list
    if atom is None or isinstance(atom, str):
        return
    if isinstance(atom, MapType) and not atom.fields and _is_untyped(atom.element):
        return
    if atom.atomic:
        if not leaf and path and (isinstance(atom, ListType) or fields):
            found.append(path)
        return
    for element, node in (fields or {}).items():
        if element == SELF:
            continue
        of = atom.element
        if isinstance(atom, MapType) and element.startswith("f:"):
            of = atom.of_key(element[2:])
        if of is not None:
            _find_atomic(node or None, of, (*path, element), not node, found)


def _is_untyped(kind: FieldType | None) -> bool:
    return kind is not None and (kind.deduced or kind.scalar == UNTYPED)
