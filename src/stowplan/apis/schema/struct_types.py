"""Struct types, compiled from the type notation into decoders.

A `StructType` has fields; decoding iterates over the client's keys, so its cost grows with the
object, not the type. Decoding does what a round trip through Go's types does: it drops unknown
fields and empty values that Go omits, adds those that Go always writes, and sets the defaults
(plain ones from the notation, the others by hooks).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stowplan.apis.machinery.resource import MergeStrategy
from stowplan.apis.schema.scalar_decoders import Decoder, FieldLocation, format_path, type_mismatch
from stowplan.objects.encoding.tree import Tree

DefaultingHook = Callable[[Tree], None]

_STRICT_MAX = 100
CACHED_VALUES_MAX = 1000
CACHED_BYTES_MAX = 16 << 10


class UnknownFields:
    """Collects texts about unknown fields; each once."""

    __slots__ = ("texts",)

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self.texts = dict.fromkeys(texts)

    def unknown(self, at: FieldLocation) -> None:
        """Record an unknown field."""
        if len(self.texts) < _STRICT_MAX:
            self.texts[f'unknown field "{format_path(at)}"'] = None


@dataclass(slots=True)
class ValueType:
    """The type of a field, of the items of a list or of the values of a map.

    go: the type's name in Go's errors. zero: what Go writes for a missing value. plain: False for
    structs, which are written even when empty. shape: the struct inside lists and maps; None for
    scalars. is_list, is_map: of the outer type. openapi: the schema of one value.
    known: the fields that are checked of a value that is kept as it is.
    """

    decode: Decoder
    go: str
    zero: Callable[[], Any]
    plain: bool = True
    shape: StructType | None = None
    is_list: bool = False
    is_map: bool = False
    item: ValueType | None = None
    openapi: Tree = field(default_factory=dict)
    known: StructType | None = None


@dataclass(slots=True)
class StructField:
    """One field of a struct.

    pointer: explicit zero values are kept. always: written even if missing. required: as OpenAPI
    says. default: set if missing (or zero, if the field is no pointer). strategies, key: of
    strategic merge.
    """

    name: str
    value: ValueType
    pointer: bool = False
    always: bool = False
    required: bool = False
    default: Any = None
    strategies: tuple[str, ...] = ()
    key: str = ""
    about: str = ""


class StructType:
    """A type with named fields."""

    def __init__(self, package: str, name: str) -> None:
        self.package = package
        self.name = name
        self.go = f"{package.rpartition('/')[2]}.{name}"
        self.fields: dict[str, StructField] = {}
        self.about = ""
        self.hook: DefaultingHook | None = None
        self._plan: dict[str, tuple[Decoder, bool, Callable[[], Any]]] = {}
        self._fills: tuple[tuple[str, Callable[[], Any]], ...] = ()

    def compile(self) -> None:
        """Prepare `decode`, once the fields are known."""
        self._plan = {
            one.name: (one.value.decode, one.pointer or not one.value.plain, one.value.zero)
            for one in self.fields.values()
        }
        fills: list[tuple[str, Callable[[], Any]]] = []
        for one in self.fields.values():
            if one.default is not None:
                fills.append((one.name, _copier(one.default)))
            elif one.always:
                fills.append((one.name, (lambda: None) if one.pointer else one.value.zero))
        self._fills = tuple(fills)

    def decode(self, value: Any, at: FieldLocation, sink: Any) -> Any:
        """A fresh canonical tree of `value`; raises TypeMismatch."""
        if type(value) is not dict:
            raise type_mismatch(value, at, self.go)
        out: Tree = {}
        plan = self._plan
        name = self.name
        for key, given in value.items():
            step = plan.get(key)
            if step is None:
                sink.unknown((at, key, name))
            elif given is not None:
                made = step[0](given, (at, key, name), sink)
                if made or step[1]:
                    out[key] = made
        for key, make in self._fills:
            if key not in out:
                out[key] = make()
        if self.hook is not None:
            self.hook(out)
        return out

    def in_order(self, tree: Tree) -> Tree:
        """The tree as Go writes it: fields in the order of the type, keys of maps sorted."""
        made = {
            name: _in_order(one.value, tree[name])
            for name, one in self.fields.items()
            if name in tree
        }
        return {**made, **{key: one for key, one in tree.items() if key not in made}}

    def zero(self) -> Tree:
        """What Go writes for a missing struct."""
        made: Tree = self.decode({}, None, UnknownFields())
        return made

    def merging(self, name: str) -> MergeStrategy | None:
        one = self.fields.get(name)
        if one is None:
            return None
        return MergeStrategy(one.strategies, one.key, one.value.shape)


class CachedStructType(StructType):
    """A type with a cache of decoded values: pods of a template have the same spec.

    The key is the encoded value; values with unknown fields are not cached, nor texts with a null:
    NaN of YAML is encoded as null.
    """

    def __init__(self, package: str, name: str) -> None:
        super().__init__(package, name)
        self._known: dict[bytes, bytes] = {}

    def decode(self, value: Any, at: FieldLocation, sink: Any) -> Any:
        """As `StructType.decode`, cached."""
        try:
            text = msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return super().decode(value, at, sink)
        known = self._known.get(text)
        if known is not None:
            return msgspec.json.decode(known)
        made = super().decode(value, at, sink)
        if not sink.texts and len(text) <= CACHED_BYTES_MAX and b"null" not in text:
            if len(self._known) >= CACHED_VALUES_MAX:
                self._known.clear()
            self._known[text] = msgspec.json.encode(made)
        return made


def _in_order(value: ValueType, tree: Any) -> Any:
    if value.is_map and isinstance(tree, dict):
        ordered = ((key, tree[key]) for key in sorted(tree))
        return {key: _in_order(value.item, one) if value.item else one for key, one in ordered}
    if value.is_list and isinstance(tree, list):
        return [_in_order(value.item, one) if value.item else one for one in tree]
    if value.shape is not None and isinstance(tree, dict):
        return value.shape.in_order(tree)
    return tree


def _copier(default: Any) -> Callable[[], Any]:
    if isinstance(default, (dict, list)):
        return lambda: copy.deepcopy(default)
    return lambda: default


def open_type(known: StructType) -> ValueType:
    """Objects that are kept as they are, if those of their fields that are known can be decoded."""

    def decode(value: Any, at: FieldLocation, _: Any) -> Any:
        known.decode(value, at, UnknownFields())
        return copy.deepcopy(value)

    schema: Tree = {"type": "object"}
    return ValueType(decode, known.go, lambda: None, False, openapi=schema, known=known)


def list_type(item: ValueType, go: str = "") -> ValueType:
    """A list."""
    go = go or f"[]{item.go}"
    item_decode, item_zero = item.decode, item.zero

    def decode(value: Any, at: FieldLocation, sink: Any) -> Any:
        if type(value) is not list:
            raise type_mismatch(value, at, go)
        return [
            item_decode(one, (at, index, ""), sink) if one is not None else item_zero()
            for index, one in enumerate(value)
        ]

    schema = {"type": "array", "items": item.openapi}
    return ValueType(decode, go, lambda: None, True, item.shape, True, False, item, schema)


def map_type(item: ValueType, go: str = "") -> ValueType:
    """A map from text."""
    go = go or f"map[string]{item.go}"
    item_decode, item_zero = item.decode, item.zero

    def decode(value: Any, at: FieldLocation, sink: Any) -> Any:
        if type(value) is not dict:
            raise type_mismatch(value, at, go)
        return {
            key: item_decode(one, (at, (key,), ""), sink) if one is not None else item_zero()
            for key, one in value.items()
        }

    schema = {"type": "object", "additionalProperties": item.openapi}
    return ValueType(decode, go, lambda: None, True, item.shape, False, True, item, schema)
