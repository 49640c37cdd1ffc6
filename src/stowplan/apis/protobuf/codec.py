"""Objects as protobuf, and back: canonical trees of the kinds, without loss.

Go writes every field that it does not hold by pointer, so empty texts and zeros are on the wire;
lists, maps and pointers are left out when they are empty.

Source: k8s.io/apimachinery, runtime/serializer/protobuf: `k8s` and a zero byte, then the envelope
Unknown; messages as gogo/protobuf writes them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.apis.machinery.stored_form import encode
from stowplan.apis.protobuf.message_types import (
    MessageField,
    MessageType,
    MessageTypes,
    element_of,
)
from stowplan.apis.protobuf.value_codecs import (
    NUMBER,
    SCALARS,
    TEXT,
    ValueCodec,
    as_bytes,
    as_text,
)
from stowplan.apis.protobuf.wire_format import (
    Payload,
    WireError,
    bytes_field,
    read_fields,
    read_pairs,
    varint_field,
)
from stowplan.apis.schema.struct_types import StructField, StructType, ValueType
from stowplan.objects.encoding.tree import Tree

MAGIC = b"k8s\x00"
DEPTH_MAX = 40
FIELDS_MAX = 200_000
"""Fields in one body: reading them takes less than a second."""
KEPT_MAX, KEPT_BYTES_MAX = 2048, 2048
"""Messages that `KeptMessages` keeps, before all are forgotten, and the longest of them."""


def encode_message(types: MessageTypes, shape: StructType, tree: Tree) -> bytes:
    """The message of a tree."""
    return _Encoder(types).message(types.of(shape), tree)


def decode_message(
    types: MessageTypes, shape: StructType, data: bytes, kept: KeptMessages | None = None
) -> Tree:
    """The tree of a message, without defaults. kept: messages in it that are given as JSON. Raises
    WireError."""
    return _Decoder(types, kept).message(types.of(shape), data, 0)


class KeptMessages:
    """The JSON of messages of one type that come again and again, by their bytes."""

    def __init__(self, shape: StructType) -> None:
        self.shape = shape
        # With the number of fields, which count as if they were read.
        self._known: dict[bytes, tuple[msgspec.Raw, int]] = {}

    def find(self, data: bytes) -> tuple[msgspec.Raw, int] | None:
        """The JSON of a message, and the number of its fields; None where it is not known."""
        return self._known.get(data)

    def keep(self, data: bytes, tree: Tree, n_fields: int) -> msgspec.Raw:
        """Keep the tree of a message as JSON, which is returned."""
        made = msgspec.Raw(encode(tree))
        if len(data) <= KEPT_BYTES_MAX:
            if len(self._known) >= KEPT_MAX:
                self._known.clear()
            self._known[data] = made, n_fields
        return made


class _Encoder:
    def __init__(self, types: MessageTypes) -> None:
        self.types = types

    def message(self, message: MessageType, tree: Tree) -> bytes:
        parts: list[bytes] = []
        for one in message.fields:
            if one.within is not None:
                parts.append(bytes_field(one.number, self.message(one.within, tree)))
            else:
                self._add_field(parts, one, tree)
        return b"".join(parts)

    def _add_field(self, parts: list[bytes], one: MessageField, tree: Tree) -> None:
        field, number = one.field, one.number
        assert field is not None
        value, kind = tree.get(field.name), field.value
        if one.repeats:
            if value:
                self._add_items(parts, number, kind, value)
        elif kind.is_list:
            parts.append(self._payload_field(number, kind, value))
        elif value is None and (field.pointer or kind.go == "[]uint8"):
            return
        else:
            parts.append(self._payload_field(number, kind, kind.zero() if value is None else value))

    def _add_items(self, parts: list[bytes], number: int, kind: ValueType, value: Any) -> None:
        item = element_of(kind)
        if kind.is_list:
            parts += [self._payload_field(number, item, each) for each in value]
            return
        for key, each in sorted(value.items(), key=lambda pair: pair[0].encode()):
            entry = self._payload_field(2, item, each)
            parts.append(bytes_field(number, bytes_field(1, key.encode()) + entry))

    def _payload_field(self, number: int, kind: ValueType, value: Any) -> bytes:
        if kind.is_list:
            inner = element_of(kind)
            items = b"".join(self._payload_field(1, inner, each) for each in value or ())
            return bytes_field(number, items)
        if kind.shape is not None:
            return bytes_field(number, self.message(self.types.of(kind.shape), value or {}))
        codec = _codec(kind)
        payload = codec.encode(value)
        if isinstance(payload, int):
            return varint_field(number, payload)
        return bytes_field(number, payload)


class _Decoder:
    """left: how many more fields are allowed. kept: see `decode_message`."""

    def __init__(self, types: MessageTypes, kept: KeptMessages | None = None) -> None:
        self.types = types
        self.kept = kept
        self.left = FIELDS_MAX

    def message(self, message: MessageType, data: bytes, depth: int) -> Tree:
        if depth > DEPTH_MAX:
            raise WireError("nested too deeply")
        tree: Tree = {}
        for number, payload in read_fields(data):
            self._count()
            one = message.by_number.get(number)
            if one is None:
                # As in Go, whose messages skip fields that they do not know.
                continue
            if one.within is not None:
                tree.update(self.message(one.within, as_bytes(payload), depth + 1))
            else:
                self._read_field(tree, one, payload, depth)
        self._settle(message, tree, depth)
        return tree

    def _count(self, n_fields: int = 1) -> None:
        self.left -= n_fields
        if self.left < 0:
            raise WireError(f"more than {FIELDS_MAX} fields")

    def _read_field(self, tree: Tree, one: MessageField, payload: Payload, depth: int) -> None:
        field = one.field
        assert field is not None
        kind = field.value
        if not one.repeats:
            tree[field.name] = self._value(kind, payload, depth)
        elif kind.is_list:
            value = self._value(element_of(kind), payload, depth)
            tree.setdefault(field.name, []).append(value)
        else:
            pair = read_pairs(as_bytes(payload))
            item = element_of(kind)
            value = self._value(item, pair.get(2, _empty(item)), depth)
            tree.setdefault(field.name, {})[as_text(pair.get(1, b""))] = value

    def _settle(self, message: MessageType, tree: Tree, depth: int) -> None:
        """Leave out what Go leaves out of JSON, and add what it always writes."""
        for name, value in list(tree.items()):
            if value:
                continue
            if name in message.plain or (value is None and name in message.nullable):
                del tree[name]
        for field in message.always:
            if tree.get(field.name) is None:
                tree[field.name] = self._zero(field, depth)

    def _zero(self, field: StructField, depth: int) -> Any:
        kind = field.value
        if field.pointer:
            return None
        if kind.shape is None or kind.is_list or kind.is_map:
            return kind.zero()
        self._count()
        return self.message(self.types.of(kind.shape), b"", depth + 1)

    def _value(self, kind: ValueType, payload: Payload, depth: int) -> Any:
        if kind.is_list:
            inner = element_of(kind)
            items = []
            for _, one in read_fields(as_bytes(payload)):
                self._count()
                items.append(self._value(inner, one, depth + 1))
            return items
        if kind.shape is not None:
            if self.kept is not None and kind.shape is self.kept.shape:
                return self._kept_message(self.kept, as_bytes(payload), depth + 1)
            return self.message(self.types.of(kind.shape), as_bytes(payload), depth + 1)
        return _codec(kind).decode(payload)

    def _kept_message(self, kept: KeptMessages, data: bytes, depth: int) -> msgspec.Raw:
        known = kept.find(data)
        if known is not None:
            self._count(known[1])
            return known[0]
        before = self.left
        tree = self.message(self.types.of(kept.shape), data, depth)
        return kept.keep(data, tree, before - self.left)


def _codec(kind: ValueType) -> ValueCodec:
    return SCALARS.get(kind.go, TEXT)


def _empty(kind: ValueType) -> Payload:
    return 0 if _codec(kind) is NUMBER else b""


def envelope(api_version: str, kind: str, message: bytes) -> bytes:
    """A message with its kind."""
    about = bytes_field(1, api_version.encode()) + bytes_field(2, kind.encode())
    rest = bytes_field(2, message) + bytes_field(3, b"") + bytes_field(4, b"")
    return b"".join((MAGIC, bytes_field(1, about), rest))


def opened(body: bytes) -> tuple[str, str, bytes]:
    """apiVersion, kind and message of an envelope. Raises WireError."""
    if not body.startswith(MAGIC):
        raise WireError("no magic number")
    parts = read_pairs(body[len(MAGIC) :])
    about = read_pairs(as_bytes(parts.get(1, b"")))
    version, kind = as_text(about.get(1, b"")), as_text(about.get(2, b""))
    return version, kind, as_bytes(parts.get(2, b""))
