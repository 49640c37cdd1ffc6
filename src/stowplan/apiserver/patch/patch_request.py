"""PATCH requests: patch types, application to stored objects, errors.

Server-side apply is `apply.apply_patch`.

Source: apiserver v0.36, endpoints/handlers/patch.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from stowplan.apis.machinery.errors import (
    ApiError,
    BodyDecodeError,
    bad_request,
    invalid,
    invalid_object,
)
from stowplan.apis.machinery.go_format import go_value, not_an_object_text, unmarshal_text
from stowplan.apis.machinery.http_messages import HttpRequest
from stowplan.apis.machinery.resource import Resource, ResourceSchema
from stowplan.apis.machinery.stored_form import encode
from stowplan.apis.schema.json_parser import DEPTH_MAX, InvalidJson, is_deeper, parse_json
from stowplan.apiserver.http.negotiation import (
    unsupported_media_type,
)
from stowplan.apiserver.patch.json_patch import (
    check_merge,
    check_operations,
    json_patched,
    merge_patched,
)
from stowplan.apiserver.patch.strategic_merge import strategic_merge_patched
from stowplan.objects.encoding.tree import Tree

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_FIELD = re.compile(
    r"json: cannot unmarshal (\w+)( \S+)? into Go (?:struct field \S+|value) of type (.+)"
)
_KINDS = {"number": "int64", "object": "map", "array": "slice"}


def patch_type(request: HttpRequest, resource: Resource) -> str:
    """The type of a patch; raises ApiError 415 for one that the kind does not support."""
    media = request.headers.get("content-type", "").split(";", 1)[0]
    if resource.custom:
        if media not in (JSON_PATCH, MERGE_PATCH, APPLY_PATCH):
            raise unsupported_media_type((JSON_PATCH, MERGE_PATCH, APPLY_PATCH))
    elif media not in (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH):
        raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    return media


def is_apply(request: HttpRequest) -> bool:
    """True for a PATCH that is a server-side apply."""
    return request.headers.get("content-type", "").split(";", 1)[0] == APPLY_PATCH


def apply_unsupported() -> ApiError:
    """415 of a server that keeps no managedFields."""
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def apply_patch(
    old: Tree,
    given: tuple[Any, list[str]],
    kind: str,
    schema: ResourceSchema,
    mode: str,
    mismatch: Callable[[Tree], str] = lambda tree: "",
) -> tuple[Tree, list[str]]:
    """The patched object, decoded and defaulted, and warnings. `old` may be changed.

    given: of `decode_patch`; it may be changed. kind: one of the media types. mismatch: the error
    text of a tree of another kind, or "". Raises ApiError 400, 413, 422.
    """
    if kind == STRATEGIC_MERGE_PATCH:
        return _strategic(old, given, schema, mode)
    patch, repeated = given
    if kind == JSON_PATCH:
        repeated = [f"json patch {text}" for text in repeated]
        repeated += check_operations(patch, mode != "Ignore")
        patched: Any = json_patched(old, patch)
        if is_deeper(patched, DEPTH_MAX):
            # Each operation may put its value deeper than the one before.
            raise bad_request("exceeded max depth")
        if not isinstance(patched, dict):
            raise _invalid_result(encode(patched).decode(), not_an_object_text(patched))
        patched = {key: patched[key] for key in sorted(patched)}
    else:
        check_merge(patch, mode != "Ignore")
        patched = merge_patched(old, patch)
    other = mismatch(patched)
    if other:
        raise _invalid_result(encode(patched).decode(), other)
    try:
        decoded, strict = _decoded(patched, schema, mode)
    except BodyDecodeError as error:
        raise _invalid_result(encode(patched).decode(), str(error)) from None
    strict = [*repeated, *strict] if mode != "Ignore" else []
    if strict and mode == "Strict":
        message = f"strict decoding error: {', '.join(strict)}"
        raise _invalid_result(encode(patched).decode(), message)
    schema.default(decoded)
    return decoded, strict


def _decoded(patched: Tree, schema: ResourceSchema, mode: str) -> tuple[Tree, list[str]]:
    decoded, strict = schema.decode(patched, (), mode)
    decoded.setdefault("metadata", {})
    return decoded, strict


def decode_patch(raw: bytes, kind: str, mode: str) -> tuple[Any, list[str]]:
    """A patch, and the texts of duplicate keys. Raises ApiError 400, 413."""
    try:
        return parse_json(raw)
    except InvalidJson as error:
        if kind == STRATEGIC_MERGE_PATCH:
            raise bad_request(str(error)) from None
        prefix = "error decoding patch: " if mode != "Ignore" else ""
        if kind == MERGE_PATCH and not prefix:
            raise bad_request("Invalid JSON Patch") from None
        raise bad_request(f"{prefix}{error}") from None


def _invalid_result(printed: str, why: str) -> ApiError:
    """422 of a patch whose result is not an object of the kind."""
    return invalid_object("", "", "", [invalid("patch", printed, why)])


def _strategic(
    old: Tree, given: tuple[Any, list[str]], schema: ResourceSchema, mode: str
) -> tuple[Tree, list[str]]:
    patch, repeated = given
    if patch is None:
        patch = {}
    if not isinstance(patch, dict):
        raise bad_request(unmarshal_text(patch, "Go value of type map[string]interface {}"))
    # The merge removes directives from the patch; the error prints the rest.
    outcome = strategic_merge_patched(old, patch, schema.shape)
    try:
        decoded, strict = _decoded(outcome, schema, mode)
    except BodyDecodeError as error:
        raise _invalid_result(go_value(patch), converter_error_text(str(error))) from None
    strict = [*repeated, *sorted(strict)] if mode != "Ignore" else []
    if strict and mode == "Strict":
        raise _invalid_result(go_value(patch), f"strict decoding error: {', '.join(strict)}")
    schema.default(decoded)
    return decoded, strict


def converter_error_text(text: str) -> str:
    """The error of the original's converter for an error `text` of its JSON decoder."""
    found = _FIELD.fullmatch(text)
    if found is None:
        return text
    got, wanted = _KINDS.get(found[1], found[1]), found[3]
    if found[1] == "number" and "." in (found[2] or ""):
        got = "float64"
    if wanted.startswith("map["):
        return f"cannot restore map from {got}"
    if wanted.startswith("[]"):
        return f"cannot restore slice from {got}"
    if not wanted.startswith(("string", "bool", "int", "uint", "float")):
        return f"cannot restore struct from: {got}"
    if (wanted, got) == ("string", "int64") or (got == "float64" and wanted != "string"):
        # Go could convert a number to a character or truncate it, and has another error for that.
        return f"cannot convert {got} to {wanted}"
    return f"unrecognized type: {wanted}"
