"""OpenAPI v2 documents as protobuf, which kubectl and Go's discovery client ask for.

Source: gnostic, openapiv2/OpenAPIv2.proto (names and numbers of fields).
"""

from __future__ import annotations

from typing import Any

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
    text,
    texts,
)
from stowplan.objects.encoding.tree import Tree

ACCEPTED = (
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
)
MEDIA = ACCEPTED[1]


def openapi_v2_message(document: Tree) -> bytes:
    """A document as a message."""
    return encoded(_DOCUMENT, document)


def _schema(value: Tree) -> bytes:
    return encoded(_SCHEMA, value, 31)


def _items(number: int, value: Tree) -> bytes:
    return bytes_field(number, bytes_field(1, _schema(value)))


def _additional(number: int, value: Any) -> bytes:
    inner = varint_field(2, value) if isinstance(value, bool) else bytes_field(1, _schema(value))
    return bytes_field(number, inner)


def _type(number: int, value: str) -> bytes:
    return bytes_field(number, text(1, value))


def _parameter(value: Tree) -> bytes:
    """One that is a body, or a query or path parameter, in their messages."""
    if value["in"] == "body":
        return bytes_field(1, bytes_field(1, encoded(_BODY, value)))
    place = 3 if value["in"] == "query" else 4
    message = _QUERY if value["in"] == "query" else _PATH_PARAMETER
    inner = bytes_field(place, encoded(message, value))
    return bytes_field(1, bytes_field(2, inner))


def _responses(number: int, value: Tree) -> bytes:
    codes = named(lambda one: bytes_field(1, encoded(_RESPONSE, one)))(value)
    return bytes_field(number, codes)


def _response_schema(number: int, value: Tree) -> bytes:
    return bytes_field(number, bytes_field(1, _schema(value)))


_SCHEMA: dict[str, tuple[int, Encode]] = {
    "$ref": (1, text),
    "format": (2, text),
    "title": (3, text),
    "description": (4, text),
    "default": (5, any_field),
    "multipleOf": (6, double),
    "maximum": (7, double),
    "exclusiveMaximum": (8, integer),
    "minimum": (9, double),
    "exclusiveMinimum": (10, integer),
    "maxLength": (11, integer),
    "minLength": (12, integer),
    "pattern": (13, text),
    "maxItems": (14, integer),
    "minItems": (15, integer),
    "uniqueItems": (16, integer),
    "maxProperties": (17, integer),
    "minProperties": (18, integer),
    "required": (19, texts),
    "enum": (20, any_fields),
    "additionalProperties": (21, _additional),
    "type": (22, _type),
    "items": (23, _items),
    "allOf": (24, each_of(_schema)),
    "properties": (25, one_of(named(_schema))),
    "readOnly": (27, integer),
    "example": (30, any_field),
}
_BODY: Message = {
    "description": (1, text),
    "name": (2, text),
    "in": (3, text),
    "required": (4, integer),
    "schema": (5, one_of(_schema)),
}
_QUERY: Message = {
    "required": (1, integer),
    "in": (2, text),
    "description": (3, text),
    "name": (4, text),
    "type": (6, text),
    "uniqueItems": (19, integer),
}
_PATH_PARAMETER: Message = {
    "required": (1, integer),
    "in": (2, text),
    "description": (3, text),
    "name": (4, text),
    "type": (5, text),
    "uniqueItems": (18, integer),
}
_RESPONSE: Message = {"description": (1, text), "schema": (2, _response_schema)}
_PARAMETERS = each_of(_parameter)
_OPERATION: Message = {
    "tags": (1, texts),
    "description": (3, text),
    "operationId": (5, text),
    "produces": (6, texts),
    "consumes": (7, texts),
    "parameters": (8, _PARAMETERS),
    "responses": (9, _responses),
    "schemes": (10, texts),
}
_PATH: Message = {
    "get": (2, inside(_OPERATION, 13)),
    "put": (3, inside(_OPERATION, 13)),
    "post": (4, inside(_OPERATION, 13)),
    "delete": (5, inside(_OPERATION, 13)),
    "patch": (8, inside(_OPERATION, 13)),
    "parameters": (9, _PARAMETERS),
}
_INFO: Message = {"title": (1, text), "version": (2, text)}
_DOCUMENT: Message = {
    "swagger": (1, text),
    "info": (2, inside(_INFO)),
    "paths": (8, one_of(named(lambda value: encoded(_PATH, value), inner=2))),
    "definitions": (9, one_of(named(_schema))),
}
