"""Values with their type: path elements of list items, the set of fields, checks of a type.

Source: structured-merge-diff v6, typed: helpers.go, validate.go, tofieldset.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from stowplan.apis.machinery.errors import go_quoted
from stowplan.apiserver.apply.field_set import (
    MEMBER,
    SELF,
    FieldSet,
    element_text,
    field_element,
    key_element,
    value_element,
)
from stowplan.apiserver.apply.field_types import (
    BOOLEAN,
    NUMERIC,
    STRING,
    FieldType,
    ListType,
    MapType,
)


class Absent:
    """The value of a field that is not there; null is a value."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()
_ERRORS_MAX = 100


class TypeErrors(ValueError):
    """What a value breaks of its type; the text is that of the original."""

    def __init__(self, texts: list[str]) -> None:
        lines = texts if len(texts) == 1 else ["errors:", *(f"  {text}" for text in texts)]
        super().__init__("\n".join(lines))


class ItemError(ValueError):
    """An item of a keyed list or a set that has no path element."""


Atom = MapType | ListType | str
"""What a value is treated as: a map, a list, or a scalar of this name."""


def atom_of(kind: FieldType, value: Any) -> Atom:
    """What a value of a type is treated as: what it is, if the type allows that."""
    kind = kind.resolved()
    if isinstance(value, dict):
        found: Atom | None = kind.map
    elif isinstance(value, list):
        found = kind.list
    else:
        found = kind.scalar if value is not None and value is not ABSENT else None
    return found or kind.map or kind.scalar or kind.list or ""


def item_element(kind: ListType, item: Any) -> str:
    """The path element of an item of a keyed list or a set. Raises ItemError."""
    if kind.keys:
        return _keyed_element(kind, item)
    if isinstance(item, dict):
        raise ItemError("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise ItemError("not supported: associative list with lists as elements")
    if item is None:
        raise ItemError("associative list without keys has an element that's an explicit null")
    return value_element(item)


def _keyed_element(kind: ListType, item: Any) -> str:
    if item is None:
        raise ItemError("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise ItemError("associative list with keys may not have non-map elements")
    found = {}
    for name, default in kind.keys:
        if name in item:
            found[name] = item[name]
        elif default is not None:
            found[name] = default
    if not found:
        names = " ".join(f'"{name}"' for name, _ in kind.keys)
        raise ItemError(
            f"associative list with keys has an element that omits all key fields [{names}] (and"
            " doesn't have default values for any key fields)"
        )
    return key_element(found)


def same_value(one: Any, other: Any) -> bool:
    """True for equal values; a boolean is no number."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_value(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


# The set of fields


def field_set(value: Any, kind: FieldType) -> FieldSet:
    """The fields of a configuration that is applied: leaves, keys of maps, items of lists."""
    return _fields(value, kind)[0]


def _fields(value: Any, kind: FieldType) -> tuple[FieldSet, bool]:
    """The paths below a value, and whether its own path belongs to the set by its type."""
    atom = atom_of(kind, value)
    if isinstance(atom, str) or atom.atomic:
        return {}, True
    if isinstance(atom, MapType):
        return _map_fields(value, atom) if isinstance(value, dict) else {}, False
    return _list_fields(value, atom) if isinstance(value, list) else {}, False


def _map_fields(value: dict[str, Any], kind: MapType) -> FieldSet:
    out: FieldSet = {}
    for key, one in value.items():
        of = kind.of_key(key)
        below, own = ({}, True) if of is None else _fields(one, of)
        own = own or one is None or one == {} or key not in kind.fields
        if below:
            out[field_element(key)] = {SELF: MEMBER, **below} if own else below
        elif own:
            out[field_element(key)] = MEMBER
    return out


def _list_fields(value: list[Any], kind: ListType) -> FieldSet:
    out: FieldSet = {}
    elements = [item_element(kind, item) for item in value]
    repeated = {e for e, count in Counter(elements).items() if count > 1}
    for element, item in zip(elements, value, strict=True):
        below = {} if element in repeated else _fields(item, kind.element)[0]
        out[element] = {SELF: MEMBER, **below} if below else MEMBER
    return out


def with_named_fields(fields: FieldSet, kind: FieldType | None) -> FieldSet:
    """The set in which the fields of structs that have paths below them are members too."""
    struct = kind.resolved().map if kind is not None else None
    items = kind.resolved().list if kind is not None else None
    out: FieldSet = {}
    for element, node in fields.items():
        if not node or element == SELF:
            out[element] = node
            continue
        below = items.element if items is not None and element[0] != "f" else None
        named = False
        if struct is not None and element[0] == "f":
            name = element[2:]
            named, below = name in struct.fields, struct.of_key(name)
        made = with_named_fields(node, below)
        out[element] = {SELF: MEMBER, **made} if named else made
    return out


# Checks


def check_type(value: Any, kind: FieldType, repeats: bool = False) -> None:
    """Check that a value is of its type. repeats: items may have the same keys.

    Raises TypeErrors.
    """
    texts: list[str] = []
    for place, text in _problems(value, kind, repeats):
        texts.append(f"{place}: {text}" if place else text)
        if len(texts) >= _ERRORS_MAX:
            break
    if texts:
        raise TypeErrors(texts)


def _problems(value: Any, kind: FieldType, repeats: bool) -> Iterator[tuple[str, str]]:
    atom = atom_of(kind, value)
    if isinstance(atom, str):
        text = _scalar_problem(value, atom)
        if text:
            yield "", text
    elif isinstance(atom, MapType):
        if isinstance(value, dict):
            yield from _map_problems(value, atom, repeats)
        elif value is not None:
            yield "", f"expected map, got {_go_interface(value)}"
    elif isinstance(value, list):
        yield from _list_problems(value, atom, repeats)
    elif value is not None:
        yield "", f"expected list, got {_go_interface(value)}"


def _map_problems(value: dict[str, Any], kind: MapType, repeats: bool) -> Iterator[tuple[str, str]]:
    for key, one in value.items():
        of = kind.of_key(key)
        if of is None:
            yield f".{key}", "field not declared in schema"
            return
        for place, text in _problems(one, of, repeats):
            yield f".{key}{place}", text


def _list_problems(value: list[Any], kind: ListType, repeats: bool) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for index, item in enumerate(value):
        place = f"[{index}]"
        if not kind.atomic:
            try:
                element = item_element(kind, item)
            except ItemError as error:
                yield "", f"element {index}: {error}"
                return
            place = element_text(element)
            if element in seen and not repeats:
                yield "", f"duplicate entries for key {place}"
            seen.add(element)
        for below, text in _problems(item, kind.element, repeats):
            yield f"{place}{below}", text


def _scalar_problem(value: Any, scalar: str) -> str:
    if value is None:
        return ""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if scalar == NUMERIC:
        return "" if number else f"expected numeric (int or float), got {_go_type(value)}"
    if scalar == STRING:
        if isinstance(value, str):
            return ""
        return f"expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"
    if scalar == BOOLEAN:
        return "" if isinstance(value, bool) else f"expected boolean, got {_go_interface(value)}"
    if number or isinstance(value, (str, bool)):
        return ""
    return f"expected any scalar, got {_go_interface(value)}"


def _go_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    return "[]interface {}" if isinstance(value, list) else "map[string]interface {}"


def _go_interface(value: Any) -> str:
    return f"&{{{_go_plain(value)}}}"


def _go_plain(value: Any) -> str:
    """A value as Go prints it with %v."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "<nil>"
    if isinstance(value, list):
        return f"[{' '.join(_go_plain(one) for one in value)}]"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{k}:{_go_plain(value[k])}' for k in sorted(value))}]"
    return str(value)


def _go_syntax(value: Any) -> str:
    """A value as Go prints it with %#v."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, str):
        return go_quoted(value)
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(_go_syntax(one) for one in value)}}}"
    if isinstance(value, dict):
        pairs = ", ".join(f"{go_quoted(k)}:{_go_syntax(value[k])}" for k in sorted(value))
        return f"map[string]interface {{}}{{{pairs}}}"
    return str(value)
