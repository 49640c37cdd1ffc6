"""Comparison of two values of a type: the fields that changed, and those that were removed.

Source: structured-merge-diff v6, typed/compare.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from stowplan.apiserver.apply.field_set import (
    ADDRESS_LETTERS,
    MEMBER,
    SELF,
    FieldSet,
    union,
    without_addresses,
)
from stowplan.apiserver.apply.field_types import FieldType, ListType, MapType
from stowplan.apiserver.apply.typed_value import (
    ABSENT,
    Atom,
    ItemError,
    atom_of,
    item_element,
    same_value,
)
from stowplan.objects.encoding.tree import Tree


class FieldComparison(NamedTuple):
    """What differs between an object and a newer one. changed: added or modified."""

    changed: FieldSet
    removed: FieldSet


_Nodes = tuple[FieldSet | None, FieldSet | None]
"""Nodes of a path in the two sets; None: neither it nor anything below is in the set."""
_SAME: _Nodes = (None, None)
KNOWN_MAX, KNOWN_BYTES_MAX = 1024, 16 << 10
_encode = msgspec.json.Encoder().encode
_IP, _MARK = b'"ip":"', b'"~'


def compare(old: Any, new: Any, kind: FieldType) -> FieldComparison:
    """Compare two objects."""
    changed, removed = _compare(old, new, kind)
    return FieldComparison(changed or {}, removed or {})


class _FieldHead(NamedTuple):
    """What comes before the node of a field. kind: its type. left_out: what of it is skipped."""

    text: bytes
    kind: FieldType | None
    left_out: FieldSet | None


class NewObjectFields:
    """The fields of new objects. Those of equal parts are found once: pods of a template have the
    same spec."""

    def __init__(self) -> None:
        self._known: dict[tuple[FieldType, bool, bytes], tuple[FieldSet | None, bytes]] = {}
        self._keys: dict[tuple[FieldType, tuple[str, ...]], bytes] = {}
        self._heads: dict[tuple[FieldType | None, int], tuple[FieldSet, dict[str, _FieldHead]]] = {}

    def fields(self, obj: Tree, empty: Tree, kind: FieldType, skipped: FieldSet) -> FieldSet:
        """The fields of an object that are not in the `empty` one.

        skipped: top-level fields to leave out, and fields of metadata.
        """
        out: FieldSet = {}
        struct = kind.resolved().map
        for key, value in obj.items():
            element = "f:" + key
            left_out = skipped.get(element)
            if key == "metadata" and left_out is not None:
                meta = struct.of_key(key) if struct is not None else None
                node = _metadata_fields(value, meta, left_out)
            elif left_out is not None:
                continue
            else:
                of = struct.of_key(key) if struct is not None else None
                node = self._node(value, empty.get(key, ABSENT), of)[0]
            if node is not None:
                out[element] = node
        return out

    def text(self, obj: Tree, empty: Tree, kind: FieldType, skipped: FieldSet) -> bytes:
        """`fields` as JSON."""
        heads = self._heads_of(kind, skipped)
        parts: list[bytes] = []
        for key, value in obj.items():
            head = heads.get(key) or _add_head(heads, key, kind, skipped)
            if key == "metadata" and head.left_out is not None:
                text = self._metadata_text(value, head.kind, head.left_out)
            elif head.left_out is not None:
                continue
            else:
                text = self._node(value, empty.get(key, ABSENT), head.kind)[1]
            if text:
                parts += head.text, text
        return _joined_fields(parts)

    def _heads_of(self, kind: FieldType | None, skipped: FieldSet) -> dict[str, _FieldHead]:
        """The beginnings of fields of a type, which `_add_head` adds."""
        # Sets of fields that are skipped live as long as the kind.
        place = kind, id(skipped)
        known = self._heads.get(place)
        if known is None or known[0] is not skipped:
            if len(self._heads) >= KNOWN_MAX:
                self._heads.clear()
            known = self._heads[place] = skipped, {}
        return known[1]

    def _node(
        self, value: Any, empty: Any, kind: FieldType | None
    ) -> tuple[FieldSet | None, bytes]:
        """The node of a value, and its JSON; empty without a node."""
        if kind is None:
            return MEMBER, b"{}"
        if not isinstance(value, dict):
            return _with_text(_compare(empty, value, kind)[0])
        key = (kind, empty is ABSENT, _encode(value))
        known = self._known.get(key)
        if known is not None:
            return known
        found = _with_text(_compare(empty, value, kind)[0])
        if len(key[2]) <= KNOWN_BYTES_MAX:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[key] = found
        return found

    def _metadata_text(self, meta: Tree, kind: FieldType | None, skipped: FieldSet) -> bytes:
        """`_metadata_fields` as JSON; empty without a field."""
        heads = self._heads_of(kind, skipped)
        parts: list[bytes] = []
        for key, value in meta.items():
            head = heads.get(key) or _add_head(heads, key, kind, skipped)
            if head.left_out is None:
                of = head.kind
                parts += head.text, b"{}" if of is None else self._map_text(value, of)
        return _joined_fields(parts) if parts else b""

    def _map_text(self, value: Any, kind: FieldType) -> bytes:
        """`all_fields` as JSON. Of a map of texts, such as labels, only the keys count."""
        if type(value) is not dict or set(map(type, value.values())) != {str}:
            return _encode(all_fields(value, kind))
        key = kind, tuple(value)
        known = self._keys.get(key)
        if known is None:
            known = _encode(all_fields(value, kind))
            if len(self._keys) >= KNOWN_MAX:
                self._keys.clear()
            if len(known) <= KNOWN_BYTES_MAX:
                self._keys[key] = known
        return known


def _add_head(
    heads: dict[str, _FieldHead], key: str, kind: FieldType | None, skipped: FieldSet
) -> _FieldHead:
    struct = kind.resolved().map if kind is not None else None
    element = "f:" + key
    of = struct.of_key(key) if struct is not None else None
    made = _FieldHead(b",%b:" % _encode(element), of, skipped.get(element))
    if len(heads) < KNOWN_MAX:
        heads[key] = made
    return made


def _joined_fields(parts: list[bytes]) -> bytes:
    """JSON of fields. parts: heads and nodes in turn."""
    return b"{%b}" % b"".join(parts)[1:]


def _with_text(node: FieldSet | None) -> tuple[FieldSet | None, bytes]:
    return node, b"" if node is None else _encode(node)


class PartComparison:
    """What differs in objects of a struct, by field of it and of what is below, as bytes.

    ignored: fields of the struct that are not compared. below: fields of which each field is
    compared alone. has_addresses: items of its lists may be keyed by an address. Fields have no
    deduced type. Comparisons of equal parts are made once: pods of a template have the same status.
    """

    def __init__(
        self,
        struct: MapType,
        ignored: frozenset[str] = frozenset(),
        below: Sequence[str] = ("metadata", "status"),
        *,
        has_addresses: bool = True,
    ) -> None:
        self._struct, self._ignored, self._has_addresses = struct, ignored, has_addresses
        self._below: dict[str, PartComparison] = {}
        for key in below:
            kind = struct.fields.get(key)
            inner = None if kind is None else kind.resolved().map
            if inner is not None and not any(one.deduced for one in inner.fields.values()):
                # Nothing of metadata is keyed by an address.
                self._below[key] = PartComparison(inner, below=(), has_addresses=key != "metadata")
        self._known: dict[tuple[str, bytes, bytes], tuple[bytes, list[int]]] = {}

    def differences(self, old: Tree, new: Tree, addresses: list[bytes]) -> tuple[object, ...]:
        """Names of fields that differ, and the sets of `compare` in each, without the addresses of
        items, which are appended. Sets determine this."""
        ignored, get = self._ignored, old.get
        found: list[object] = []
        n_old = len(old)
        for key, one in new.items():
            before = get(key, ABSENT)
            if before is ABSENT:
                n_old += 1
            if key in ignored or before == one:
                continue
            below = self._below.get(key)
            # Many new fields are looked up faster as a whole, as is what was empty.
            if (
                below is not None
                and before
                and one
                and before is not ABSENT
                and (len(one) <= len(before) + 1 or key == "metadata")
            ):
                found += (key, below.differences(before, one, addresses))
            else:
                found += (key, self._difference(key, before, one, addresses))
        if n_old > len(new):
            for key, one in old.items():
                if key not in new and key not in ignored:
                    found += (key, self._difference(key, one, ABSENT, addresses))
        return tuple(found)

    def _difference(self, key: str, old: Any, new: Any, addresses: list[bytes]) -> bytes:
        one = b"" if old is ABSENT else _encode(old)
        other = b"" if new is ABSENT else _encode(new)
        own: list[bytes] = []
        if self._has_addresses and (one.find(_IP) >= 0 or other.find(_IP) >= 0):
            one, other, own = _with_marks(one, other)
        known = self._known.get((key, one, other))
        if known is not None:
            if known[1]:
                addresses += [own[at] for at in known[1]]
            return known[0]
        found = _encode(_compare_undeclared(self._struct, key, old, new))
        found, used = without_addresses(found)
        addresses += used
        is_general = all(each in own for each in used) and not any(each in found for each in own)
        if is_general and len(one) + len(other) <= KNOWN_BYTES_MAX:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[key, one, other] = found, [own.index(each) for each in used]
        return found


def _with_marks(one: bytes, other: bytes) -> tuple[bytes, bytes, list[bytes]]:
    """JSON of two values with marks instead of the addresses of items, and these.

    Values of one form differ in the same fields, since only equality counts: pods of a template
    have statuses that differ in addresses.
    """
    # `in` would take twice as long, and a regular expression three times.
    if one.find(_MARK) >= 0 or other.find(_MARK) >= 0:
        return one, other, []
    found = [part[: part.find(b'"')] for part in one.split(_IP)[1:] + other.split(_IP)[1:]]
    own = [each for each in dict.fromkeys(found) if each and not each.strip(ADDRESS_LETTERS)]
    for at, address in enumerate(own):
        quoted, mark = b'"%b"' % address, b'%b%d"' % (_MARK, at)
        one, other = one.replace(quoted, mark), other.replace(quoted, mark)
    return one, other, own


def _metadata_fields(meta: Tree, kind: FieldType | None, left_out: FieldSet) -> FieldSet | None:
    struct = kind.resolved().map if kind is not None else None
    out: FieldSet = {}
    for key, value in meta.items():
        element = "f:" + key
        if element not in left_out:
            of = struct.of_key(key) if struct is not None else None
            out[element] = MEMBER if of is None else all_fields(value, of)
    return out or None


def all_fields(value: Any, kind: FieldType) -> FieldSet:
    """The node of a value that was added or removed: its path and everything below."""
    if type(value) is str or not value or not isinstance(value, (dict, list)):
        return MEMBER
    atom = atom_of(kind, value)
    if isinstance(atom, str) or atom.atomic:
        return MEMBER
    if isinstance(atom, MapType):
        if not isinstance(value, dict):
            return MEMBER
        fields, element = atom.fields, atom.element
        out: FieldSet = {SELF: MEMBER}
        for key, one in value.items():
            of = fields.get(key, element)
            out["f:" + key] = MEMBER if of is None else all_fields(one, of)
        return out
    if not isinstance(value, list):
        return MEMBER
    out = {SELF: MEMBER}
    for name, items in _by_element(atom, value).items():
        out[name] = all_fields(items[0], atom.element) if len(items) == 1 else MEMBER
    return out


def _compare(old: Any, new: Any, kind: FieldType) -> _Nodes:
    if old is ABSENT:
        return all_fields(new, kind), None
    if new is ABSENT:
        return None, all_fields(old, kind)
    if not kind.deduced and old == new:
        return _SAME
    return _compare_unequal(old, new, kind)


def _compare_unequal(old: Any, new: Any, kind: FieldType) -> _Nodes:
    if type(new) is dict and type(old) is dict:
        # Most structs and maps are no other type as well.
        struct = kind.resolved().map
        if struct is not None and not struct.atomic and (new or old):
            return _compare_maps(struct, old, new)
    elif type(new) is str and type(old) is str and kind.resolved().scalar:
        return _SAME if old == new else (MEMBER, None)
    before, after = atom_of(kind, old), atom_of(kind, new)
    found = _compare_as(after, old, new)
    if before is after or before == after:
        return found
    other = _compare_as(before, old, new)
    return _joined(found[0], other[0]), _joined(found[1], other[1])


def _joined(one: FieldSet | None, other: FieldSet | None) -> FieldSet | None:
    if one is None or other is None:
        return other if one is None else one
    if not one or not other:
        return {SELF: MEMBER, **one, **other} if one or other else MEMBER
    return union(one, other)


def _compare_as(atom: Atom, old: Any, new: Any) -> _Nodes:
    if isinstance(atom, str):
        return _compare_leaf(old, new)
    shape = dict if isinstance(atom, MapType) else list
    had = old if isinstance(old, shape) else shape()
    has = new if isinstance(new, shape) else shape()
    if atom.atomic or not (had or has):
        return _compare_leaf(old, new)
    if isinstance(atom, MapType):
        return _compare_maps(atom, had, has)
    return _compare_lists(atom, had, has)


def _compare_leaf(old: Any, new: Any) -> _Nodes:
    return _SAME if same_value(old, new) else (MEMBER, None)


def _compare_maps(kind: MapType, old: Any, new: Any) -> _Nodes:
    changed: FieldSet = {}
    removed: FieldSet = {}
    fields, element = kind.fields, kind.element
    for key, one in new.items():
        before = old.get(key, ABSENT)
        if before is one:
            continue
        of = fields.get(key, element)
        if of is not None and before is not ABSENT:
            # Most values are equal, and are compared once here rather than at every level.
            if of.deduced or before != one:
                _add(changed, removed, "f:" + key, _compare_unequal(before, one, of))
            continue
        _add(changed, removed, "f:" + key, _compare_undeclared(kind, key, before, one))
    for key, one in old.items():
        if key not in new:
            _add(changed, removed, "f:" + key, _compare_undeclared(kind, key, one, ABSENT))
    return changed or None, removed or None


def _compare_undeclared(kind: MapType, key: str, old: Any, new: Any) -> _Nodes:
    """Compare the values of a key; one that the type does not have counts as a scalar."""
    of = kind.of_key(key)
    if of is not None:
        return _compare(old, new, of)
    if old is ABSENT:
        return MEMBER, None
    return (None, MEMBER) if new is ABSENT else _compare_leaf(old, new)


def _add(changed: FieldSet, removed: FieldSet, element: str, nodes: _Nodes) -> None:
    if nodes[0] is not None:
        changed[element] = nodes[0]
    if nodes[1] is not None:
        removed[element] = nodes[1]


def _by_element(kind: ListType, items: list[Any]) -> dict[str, list[Any]]:
    """The items by their path element; those without one are left out."""
    found: dict[str, list[Any]] = {}
    for item in items:
        try:
            found.setdefault(item_element(kind, item), []).append(item)
        except ItemError:
            continue
    return found


def _compare_lists(kind: ListType, old: Any, new: Any) -> _Nodes:
    changed: FieldSet = {}
    removed: FieldSet = {}
    had, has = _by_element(kind, old), _by_element(kind, new)
    for element in {**had, **has}:
        nodes = _compare_items(kind, had.get(element, []), has.get(element, []))
        _add(changed, removed, element, nodes)
    return changed or None, removed or None


def _compare_items(kind: ListType, old: list[Any], new: list[Any]) -> _Nodes:
    """Compare the items of one key; there may be several."""
    if len(old) <= 1 and len(new) <= 1:
        return _compare(old[0] if old else ABSENT, new[0] if new else ABSENT, kind.element)
    if len(old) >= 2 and len(new) >= 2:
        return _compare_leaf(old, new)
    if len(old) >= 2:
        return (all_fields(new[0], kind.element) if new else None), MEMBER
    return MEMBER, (all_fields(old[0], kind.element) if old else None)
