"""Fields of messages of OpenAPI documents.

Source: gnostic, openapiv2/OpenAPIv2.proto and openapiv3/OpenAPIv3.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stowplan.apis.protobuf.wire_format import bytes_field, varint_field
from stowplan.objects.encoding.tree import Tree

_FIXED64 = 1

Encode = Callable[[int, Any], bytes]
"""From number and value to the encoded field."""
Message = Mapping[str, tuple[int, Encode]]
"""A message: JSON key -> number and encoder of its field."""


def encoded(message: Message, tree: Tree, extensions: int = 0) -> bytes:
    """A message. extensions: the field for keys that begin with `x-`."""
    parts = []
    for key, value in tree.items():
        known = message.get(key)
        if known is not None:
            parts.append(known[1](known[0], value))
        elif extensions and key.startswith("x-"):
            parts.append(bytes_field(extensions, _pair(key, _any(value))))
    return b"".join(parts)


def _pair(name: str, value: bytes) -> bytes:
    return bytes_field(1, name.encode()) + bytes_field(2, value)


def _any(value: Any) -> bytes:
    # JSON is YAML.
    return bytes_field(2, msgspec.json.encode(value))


def text(number: int, value: str) -> bytes:
    """A string."""
    return bytes_field(number, value.encode())


def texts(number: int, value: list[str]) -> bytes:
    """Repeated strings."""
    return b"".join(text(number, one) for one in value)


def integer(number: int, value: int) -> bytes:
    """An integer or a boolean."""
    return varint_field(number, value)


def double(number: int, value: float) -> bytes:
    """A double."""
    return bytes((number << 3 | _FIXED64,)) + struct.pack("<d", value)


def any_field(number: int, value: Any) -> bytes:
    """A value of any type."""
    return bytes_field(number, _any(value))


def any_fields(number: int, value: list[Any]) -> bytes:
    """Repeated values of any type."""
    return b"".join(any_field(number, one) for one in value)


def inside(message: Message, extensions: int = 0) -> Encode:
    """A message as a field."""
    return lambda number, value: bytes_field(number, encoded(message, value, extensions))


def or_reference(message: Message, extensions: int = 0) -> Callable[[Tree], bytes]:
    """A message that has the value itself in field 1 or a reference in field 2."""

    def encode(value: Tree) -> bytes:
        if "$ref" in value:
            return bytes_field(2, bytes_field(1, value["$ref"].encode()))
        return bytes_field(1, encoded(message, value, extensions))

    return encode


def one_of(encode: Callable[[Tree], bytes]) -> Encode:
    """What `encode` makes of a value, as a field."""
    return lambda number, value: bytes_field(number, encode(value))


def each_of(encode: Callable[[Tree], bytes]) -> Encode:
    """What `encode` makes of each value, as a repeated field."""
    return lambda number, value: b"".join(bytes_field(number, encode(one)) for one in value)


def named(encode: Callable[[Tree], bytes], inner: int = 1) -> Callable[[Tree], bytes]:
    """A message of named values in a repeated field."""
    return lambda value: b"".join(
        bytes_field(inner, _pair(name, encode(one))) for name, one in value.items()
    )
