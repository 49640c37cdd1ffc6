"""Sets of field paths, in the form in which `fieldsV1` of managedFields nests them.

A set is a tree of path elements: `f:NAME` a field, `k:{"name":"c"}` a list item by its keys,
`v:"x"` a value of a set. A node without children is a member of the set; a node with children is
one if it has the child `.`. So `{"f:data": {".": {}, "f:a": {}}}` has `.data` and `.data.a`. The
root is no member. Nodes are shared between sets: no function here changes its arguments.

Source: structured-merge-diff v6, fieldpath.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from stowplan.objects.encoding.tree import Tree

FieldSet = Tree
SELF = "."
MEMBER: FieldSet = {}
"""A member without children."""
_encode = msgspec.json.Encoder(order="sorted").encode
_ELEMENTS_MAX, _ELEMENT_MAX = 4096, 256
_known_elements: dict[tuple[tuple[str, Any], ...], str] = {}
_ADDRESS_START = b'"k:{\\"ip\\":'
ADDRESS_ELEMENT = b'"k:{\\"ip\\":\\"%b\\"}"'
"""The path element of an address (`podIPs`, `hostAliases`), as JSON, with a place for it."""
NO_ADDRESS = ADDRESS_ELEMENT % b""
ADDRESS_LETTERS = b"0123456789ABCDEFabcdef.:"
_ADDRESS = re.compile(rb'"k:\{\\"ip\\":\\"([0-9A-Fa-f.:]*)\\"\}"')
_RANKS = {"f:": 0, "k:": 1, "v:": 2, "i:": 3}


class InvalidFieldSet(ValueError):
    """A `fieldsV1` that is no set of fields."""


def field_element(name: str) -> str:
    """The path element of a field of a struct or a key of a map."""
    return f"f:{name}"


def key_element(keys: Tree) -> str:
    """The path element of a list item with these keys."""
    # Of others than texts equal ones may be written in several ways.
    if not all(type(value) is str for value in keys.values()):
        return f"k:{_encode(keys).decode()}"
    pairs = tuple(keys.items())
    found = _known_elements.get(pairs)
    if found is None:
        found = f"k:{_encode(keys).decode()}"
        if len(_known_elements) >= _ELEMENTS_MAX:
            _known_elements.clear()
        if len(found) <= _ELEMENT_MAX:
            _known_elements[pairs] = found
    return found


def value_element(value: Any) -> str:
    """The path element of a value of a set."""
    return f"v:{_encode(value).decode()}"


def without_addresses(text: bytes) -> tuple[bytes, list[bytes]]:
    """JSON of sets, its items that are keyed by an address with an empty one, and the addresses."""
    if _ADDRESS_START not in text:
        return text, []
    parts = _ADDRESS.split(text)
    return NO_ADDRESS.join(parts[::2]), parts[1::2]


def is_member(node: FieldSet) -> bool:
    """True if the path of a node belongs to the set."""
    return not node or SELF in node


def as_node(children: FieldSet, member: bool) -> FieldSet | None:
    """A node of these children; None if there is nothing to keep."""
    if not children:
        return MEMBER if member else None
    return {SELF: MEMBER, **children} if member else children


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """The paths of either root."""
    if not one or one is other:
        return other
    if not other:
        return one
    out = dict(one)
    for element, node in other.items():
        known = out.get(element)
        out[element] = node if known is None else _node_union(known, node)
    return out


def _node_union(one: FieldSet, other: FieldSet) -> FieldSet:
    if one is other or one == other:
        return one
    if not one:
        return {SELF: MEMBER, **other}
    if not other:
        return {SELF: MEMBER, **one}
    return union(one, other)


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """The paths of `one` that are not in `other`; children of a removed path stay."""
    if not other or not one:
        return one
    return _children_difference(one, other)


def _children_difference(one: FieldSet, other: FieldSet) -> FieldSet:
    out: FieldSet = {}
    for element, node in one.items():
        if element == SELF:
            continue
        against = other.get(element)
        if against is None:
            out[element] = node
            continue
        member = is_member(node) and not is_member(against)
        left = as_node(_children_difference(node, against), member)
        if left is not None:
            out[element] = left
    return out


def recursive_difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """The paths of `one` that are neither in `other` nor below a path of it."""
    out: FieldSet = {}
    for element, node in one.items():
        if element == SELF:
            continue
        against = other.get(element)
        if against is None:
            out[element] = node
        elif not is_member(against):
            left = as_node(recursive_difference(node, against), is_member(node))
            if left is not None:
                out[element] = left
    return out


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """The paths of both."""
    out: FieldSet = {}
    for element, node in one.items():
        against = other.get(element)
        if against is None or element == SELF:
            continue
        member = is_member(node) and is_member(against)
        shared = as_node(intersection(node, against), member)
        if shared is not None:
            out[element] = shared
    return out


def has_path(fields: FieldSet, path: tuple[str, ...]) -> bool:
    """True if a path is in the set."""
    node = fields
    for element in path:
        below = node.get(element)
        if below is None:
            return False
        node = below
    return is_member(node)


def set_of_path(path: tuple[str, ...]) -> FieldSet:
    """The set of one path."""
    node = MEMBER
    for element in reversed(path):
        node = {element: node}
    return node


def paths(fields: FieldSet, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths, in the original's order: the members of a level, then what is below them."""
    elements = sorted((e for e in fields if e != SELF), key=_element_order)
    for element in elements:
        if is_member(fields[element]):
            yield (*prefix, element)
    for element in elements:
        if fields[element]:
            yield from paths(fields[element], (*prefix, element))


def in_order(fields: FieldSet) -> FieldSet:
    """The same set, its elements in the order in which the original writes them."""
    made: FieldSet = {SELF: fields[SELF]} if SELF in fields else {}
    for element in sorted((e for e in fields if e != SELF), key=_element_order):
        made[element] = in_order(fields[element])
    return made


def path_text(path: tuple[str, ...]) -> str:
    """A path as errors print it: `.spec.containers[name="c"].image`."""
    return "".join(element_text(element) for element in path)


def element_text(element: str) -> str:
    """One element as errors print it."""
    kind, value = element[:2], element[2:]
    if kind == "f:":
        return f".{value}"
    if kind == "k:":
        keys = json.loads(value)
        return f"[{','.join(f'{key}={_printed(one)}' for key, one in sorted(keys.items()))}]"
    if kind == "v:":
        return f"[={_printed(json.loads(value))}]"
    return f"[{value}]"


def _printed(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _element_order(element: str) -> tuple[int, Any]:
    rank = _RANKS[element[:2]]
    if rank == 0:
        return rank, element
    value = json.loads(element[2:])
    if rank == 1:
        return rank, [(key, *_value_order(value[key])) for key in sorted(value)]
    return rank, _value_order(value)


def _value_order(value: Any) -> tuple[int, Any]:
    """Numbers, then texts, then booleans, then null, as the original compares values."""
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, (int, float)):
        return 0, value
    return (1, value) if isinstance(value, str) else (5, "")


def parse_field_set(tree: Any) -> FieldSet:
    """A `fieldsV1` that a client has sent, in canonical form. Raises InvalidFieldSet."""
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise InvalidFieldSet(f"expected a map of path elements, got {type(tree).__name__}")
    made, _ = _parsed(tree)
    return made


def _parsed(tree: Tree) -> tuple[FieldSet, bool]:
    """The children of a node, and whether it has the child `.`."""
    out: FieldSet = {}
    own = False
    for element, below in tree.items():
        if element == SELF:
            own = True
            continue
        if not isinstance(below, dict):
            raise InvalidFieldSet(f"expected a map below {element!r}")
        canonical = _canonical_element(element)
        if canonical is None:
            continue
        children, listed = _parsed(below)
        node = as_node(children, listed or not below)
        if node is not None:
            known = out.get(canonical)
            out[canonical] = node if known is None else _node_union(known, node)
    return out, own


def _canonical_element(element: str) -> str | None:
    """The element in canonical form; None for a kind that is not known (the original skips it)."""
    kind, value = element[:2], element[2:]
    if len(element) < 2 or element[1] != ":":
        raise InvalidFieldSet(f"missing colon: {element!r}")
    if kind == "f:":
        return element
    if kind not in _RANKS:
        return None
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise InvalidFieldSet(f"path element {element!r}: {error}") from None
    if kind == "k:":
        if not isinstance(parsed, dict):
            raise InvalidFieldSet(f"path element {element!r}: expected a map of keys")
        return key_element(parsed)
    return value_element(parsed) if kind == "v:" else f"i:{parsed}"
