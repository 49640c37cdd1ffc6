"""OpenAPI v3 documents as protobuf, which clients of schemas ask for.

Differs: a default that is an object or a list is left out, since the message has no place for it.

Source: gnostic, openapiv3/OpenAPIv3.proto (names and numbers of fields).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stowplan.apis.protobuf.wire_format import bytes_field, varint_field
from stowplan.objects.encoding.tree import Tree

MEDIA = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
ACCEPTED = (MEDIA, "application/com.github.proto-openapi.spec.v3@v1.0+protobuf")
_FIXED64 = 1

_Encode = Callable[[int, Any], bytes]
_Message = Mapping[str, tuple[int, _Encode]]
"""A message: JSON key -> number and encoder of its field."""


def openapi_message(document: bytes) -> bytes:
    """A document, which is given as JSON, as a message."""
    return _encoded(_DOCUMENT, msgspec.json.decode(document))


def _encoded(message: _Message, tree: Tree, extensions: int = 0) -> bytes:
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


def _text(number: int, value: str) -> bytes:
    return bytes_field(number, value.encode())


def _texts(number: int, value: list[str]) -> bytes:
    return b"".join(_text(number, one) for one in value)


def _integer(number: int, value: int) -> bytes:
    return varint_field(number, value)


def _double(number: int, value: float) -> bytes:
    return bytes((number << 3 | _FIXED64,)) + struct.pack("<d", value)


def _any_field(number: int, value: Any) -> bytes:
    return bytes_field(number, _any(value))


def _any_fields(number: int, value: list[Any]) -> bytes:
    return b"".join(_any_field(number, one) for one in value)


def _inside(message: _Message, extensions: int = 0) -> _Encode:
    return lambda number, value: bytes_field(number, _encoded(message, value, extensions))


def _or_reference(message: _Message, extensions: int = 0) -> Callable[[Tree], bytes]:
    """A message that has the value itself in field 1 or a reference in field 2."""

    def encode(value: Tree) -> bytes:
        if "$ref" in value:
            return bytes_field(2, bytes_field(1, value["$ref"].encode()))
        return bytes_field(1, _encoded(message, value, extensions))

    return encode


def _one_of(encode: Callable[[Tree], bytes]) -> _Encode:
    return lambda number, value: bytes_field(number, encode(value))


def _each_of(encode: Callable[[Tree], bytes]) -> _Encode:
    return lambda number, value: b"".join(bytes_field(number, encode(one)) for one in value)


def _named(encode: Callable[[Tree], bytes], inner: int = 1) -> Callable[[Tree], bytes]:
    """A message of named values in a repeated field."""
    return lambda value: b"".join(
        bytes_field(inner, _pair(name, encode(one))) for name, one in value.items()
    )


def _schema(value: Tree) -> bytes:
    return _SCHEMA_OR_REFERENCE(value)


def _items(number: int, value: Tree) -> bytes:
    return bytes_field(number, bytes_field(1, _schema(value)))


def _additional(number: int, value: Any) -> bytes:
    inner = varint_field(2, value) if isinstance(value, bool) else bytes_field(1, _schema(value))
    return bytes_field(number, inner)


def _default(number: int, value: Any) -> bytes:
    if isinstance(value, bool):
        return bytes_field(number, varint_field(2, value))
    if isinstance(value, (int, float)):
        return bytes_field(number, _double(1, value))
    return bytes_field(number, _text(3, value)) if isinstance(value, str) else b""


_DOCS: _Message = {"description": (1, _text), "url": (2, _text)}
_SCHEMA: dict[str, tuple[int, _Encode]] = {
    "nullable": (1, _integer),
    "readOnly": (3, _integer),
    "writeOnly": (4, _integer),
    "externalDocs": (6, _inside(_DOCS)),
    "example": (7, _any_field),
    "deprecated": (8, _integer),
    "title": (9, _text),
    "multipleOf": (10, _double),
    "maximum": (11, _double),
    "exclusiveMaximum": (12, _integer),
    "minimum": (13, _double),
    "exclusiveMinimum": (14, _integer),
    "maxLength": (15, _integer),
    "minLength": (16, _integer),
    "pattern": (17, _text),
    "maxItems": (18, _integer),
    "minItems": (19, _integer),
    "uniqueItems": (20, _integer),
    "maxProperties": (21, _integer),
    "minProperties": (22, _integer),
    "required": (23, _texts),
    "enum": (24, _any_fields),
    "type": (25, _text),
    "allOf": (26, _each_of(_schema)),
    "oneOf": (27, _each_of(_schema)),
    "anyOf": (28, _each_of(_schema)),
    "items": (30, _items),
    "properties": (31, _one_of(_named(_schema))),
    "additionalProperties": (32, _additional),
    "default": (33, _default),
    "description": (34, _text),
    "format": (35, _text),
}
_SCHEMA["not"] = (29, _inside(_SCHEMA, 36))
_SCHEMA_OR_REFERENCE = _or_reference(_SCHEMA, 36)
_MEDIA_TYPE: _Message = {"schema": (1, _one_of(_schema))}
_CONTENT = _one_of(_named(lambda value: _encoded(_MEDIA_TYPE, value)))
_PARAMETER: _Message = {
    "name": (1, _text),
    "in": (2, _text),
    "description": (3, _text),
    "required": (4, _integer),
    "schema": (10, _one_of(_schema)),
}
_PARAMETERS = _each_of(_or_reference(_PARAMETER, 14))
_REQUEST_BODY: _Message = {
    "description": (1, _text),
    "content": (2, _CONTENT),
    "required": (3, _integer),
}
_RESPONSE: _Message = {"description": (1, _text), "content": (3, _CONTENT)}
_OPERATION: _Message = {
    "tags": (1, _texts),
    "summary": (2, _text),
    "description": (3, _text),
    "operationId": (5, _text),
    "parameters": (6, _PARAMETERS),
    "requestBody": (7, _one_of(_or_reference(_REQUEST_BODY, 4))),
    "responses": (8, _one_of(_named(_or_reference(_RESPONSE, 5), inner=2))),
    "deprecated": (10, _integer),
}
_PATH: _Message = {
    "summary": (2, _text),
    "description": (3, _text),
    "get": (4, _inside(_OPERATION, 13)),
    "put": (5, _inside(_OPERATION, 13)),
    "post": (6, _inside(_OPERATION, 13)),
    "delete": (7, _inside(_OPERATION, 13)),
    "patch": (10, _inside(_OPERATION, 13)),
    "parameters": (13, _PARAMETERS),
}
_INFO: _Message = {"title": (1, _text), "description": (2, _text), "version": (6, _text)}
_COMPONENTS: _Message = {"schemas": (1, _one_of(_named(_schema)))}
_DOCUMENT: _Message = {
    "openapi": (1, _text),
    "info": (2, _inside(_INFO)),
    "paths": (4, _one_of(_named(lambda value: _encoded(_PATH, value, 14)))),
    "components": (5, _inside(_COMPONENTS)),
}
