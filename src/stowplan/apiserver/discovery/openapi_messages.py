"""OpenAPI v3 documents as protobuf, which clients of schemas ask for.

Differs: a default that is an object or a list is left out, since the message has no place for it.

Source: gnostic, openapiv3/OpenAPIv3.proto (names and numbers of fields).
"""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.apis.protobuf.wire_format import bytes_field, varint_field
from stowplan.apiserver.discovery.message_fields import (
    Encode,
    Message,
    any_field,
    any_fields,
    double,
    each_of,
    encoded,
    inside,
    integer,
    named,
    one_of,
    or_reference,
    text,
    texts,
)
from stowplan.objects.encoding.tree import Tree

MEDIA = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
ACCEPTED = (MEDIA, "application/com.github.proto-openapi.spec.v3@v1.0+protobuf")


def openapi_message(document: bytes) -> bytes:
    """A document, which is given as JSON, as a message."""
    return encoded(_DOCUMENT, msgspec.json.decode(document))


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
        return bytes_field(number, double(1, value))
    return bytes_field(number, text(3, value)) if isinstance(value, str) else b""


_DOCS: Message = {"description": (1, text), "url": (2, text)}
_SCHEMA: dict[str, tuple[int, Encode]] = {
    "nullable": (1, integer),
    "readOnly": (3, integer),
    "writeOnly": (4, integer),
    "externalDocs": (6, inside(_DOCS)),
    "example": (7, any_field),
    "deprecated": (8, integer),
    "title": (9, text),
    "multipleOf": (10, double),
    "maximum": (11, double),
    "exclusiveMaximum": (12, integer),
    "minimum": (13, double),
    "exclusiveMinimum": (14, integer),
    "maxLength": (15, integer),
    "minLength": (16, integer),
    "pattern": (17, text),
    "maxItems": (18, integer),
    "minItems": (19, integer),
    "uniqueItems": (20, integer),
    "maxProperties": (21, integer),
    "minProperties": (22, integer),
    "required": (23, texts),
    "enum": (24, any_fields),
    "type": (25, text),
    "allOf": (26, each_of(_schema)),
    "oneOf": (27, each_of(_schema)),
    "anyOf": (28, each_of(_schema)),
    "items": (30, _items),
    "properties": (31, one_of(named(_schema))),
    "additionalProperties": (32, _additional),
    "default": (33, _default),
    "description": (34, text),
    "format": (35, text),
}
_SCHEMA["not"] = (29, inside(_SCHEMA, 36))
_SCHEMA_OR_REFERENCE = or_reference(_SCHEMA, 36)
_MEDIA_TYPE: Message = {"schema": (1, one_of(_schema))}
_CONTENT = one_of(named(lambda value: encoded(_MEDIA_TYPE, value)))
_PARAMETER: Message = {
    "name": (1, text),
    "in": (2, text),
    "description": (3, text),
    "required": (4, integer),
    "schema": (10, one_of(_schema)),
}
_PARAMETERS = each_of(or_reference(_PARAMETER, 14))
_REQUEST_BODY: Message = {
    "description": (1, text),
    "content": (2, _CONTENT),
    "required": (3, integer),
}
_RESPONSE: Message = {"description": (1, text), "content": (3, _CONTENT)}
_OPERATION: Message = {
    "tags": (1, texts),
    "summary": (2, text),
    "description": (3, text),
    "operationId": (5, text),
    "parameters": (6, _PARAMETERS),
    "requestBody": (7, one_of(or_reference(_REQUEST_BODY, 4))),
    "responses": (8, one_of(named(or_reference(_RESPONSE, 5), inner=2))),
    "deprecated": (10, integer),
}
_PATH: Message = {
    "summary": (2, text),
    "description": (3, text),
    "get": (4, inside(_OPERATION, 13)),
    "put": (5, inside(_OPERATION, 13)),
    "post": (6, inside(_OPERATION, 13)),
    "delete": (7, inside(_OPERATION, 13)),
    "patch": (10, inside(_OPERATION, 13)),
    "parameters": (13, _PARAMETERS),
}
_INFO: Message = {"title": (1, text), "description": (2, text), "version": (6, text)}
_COMPONENTS: Message = {"schemas": (1, one_of(named(_schema)))}
_DOCUMENT: Message = {
    "openapi": (1, text),
    "info": (2, inside(_INFO)),
    "paths": (4, one_of(named(lambda value: encoded(_PATH, value, 14)))),
    "components": (5, inside(_COMPONENTS)),
}
