"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386), as applied by the original's library.

Differs from the RFC where the library does: replacing a missing member adds it, and array indices
may count from the end.
Source: evanphx/json-patch v4; apiserver v0.36, endpoints/handlers/patch.go.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from stowplan.apis.machinery.errors import ApiError, bad_request
from stowplan.apis.machinery.go_format import unmarshal_text
from stowplan.apis.machinery.stored_form import encode
from stowplan.apis.machinery.strconv import NumError, atoi
from stowplan.objects.encoding.tree import Tree

OPERATIONS_MAX = 10_000
COPIED_BYTES_MAX = 3 << 20
OPERATION_MEMBERS = {"op", "path", "from", "value"}


class PatchNotApplicable(ValueError):
    """An operation that does not apply to the document."""


def patch_rejected() -> ApiError:
    """422 of a JSON patch that does not apply; the original gives no details."""
    text = "the server rejected our request due to an error in our request"
    return ApiError(422, "Invalid", text, {})


def check_operations(patch: Any, strict: bool) -> list[str]:
    """Texts of unknown members of operations; raises ApiError 400 or 413 for an invalid patch."""
    prefix = "error decoding patch: " if strict else ""
    kind = "[]handlers.jsonPatchOp" if strict else "jsonpatch.Patch"
    if not isinstance(patch, list):
        if patch is None:
            return []
        raise bad_request(prefix + unmarshal_text(patch, f"Go value of type {kind}"))
    unknown = []
    for at, operation in enumerate(patch):
        if not isinstance(operation, dict):
            one = "handlers.jsonPatchOp" if strict else "jsonpatch.Operation"
            raise bad_request(prefix + unmarshal_text(operation, f"Go value of type {one}"))
        for name in ("op", "path", "from"):
            value = operation.get(name)
            if strict and value is not None and not isinstance(value, str):
                place = f"Go struct field jsonPatchOp.{name} of type string"
                raise bad_request(prefix + unmarshal_text(value, place))
        unknown += [
            f'json patch unknown field "[{at}].{n}"'
            for n in operation
            if n not in OPERATION_MEMBERS
        ]
    if len(patch) > OPERATIONS_MAX:
        text = f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}"
        text = f"Request entity too large: {text}, got {len(patch)}"
        raise ApiError(413, "RequestEntityTooLarge", text)
    return unknown


def json_patched(document: Any, patch: list[Tree] | None) -> Any:
    """The document with all operations applied; raises ApiError 422. `document` may be changed.

    The result need not be an object: an operation may replace the whole document.
    """
    copied = 0
    try:
        for operation in patch or ():
            if operation.get("path") == "" and operation.get("op") in ("replace", "test"):
                document = _apply_to_all(document, operation)
                continue
            copied += _apply(document, operation)
            if copied > COPIED_BYTES_MAX:
                # Copies of copies grow exponentially.
                raise PatchNotApplicable
    except PatchNotApplicable:
        raise patch_rejected() from None
    except RecursionError:
        # Each operation may nest its value deeper than the one before.
        raise bad_request("exceeded max depth") from None
    return document


def _apply_to_all(document: Any, operation: Tree) -> Any:
    value = operation.get("value")
    if operation["op"] == "replace":
        if not isinstance(value, dict | list):
            raise PatchNotApplicable
        return copy.deepcopy(value)
    if not _same(document, value):
        raise PatchNotApplicable
    return document


def _apply(document: Any, operation: Tree) -> int:
    """Apply one operation; returns how many bytes of the document it has copied."""
    kind = operation.get("op")
    path = _pointer(operation.get("path"))
    if kind == "add":
        _add(document, path, copy.deepcopy(operation.get("value")))
    elif kind == "remove":
        _remove(document, path)
    elif kind == "replace":
        _replace(document, path, copy.deepcopy(operation.get("value")))
    elif kind == "test":
        if not _same(_find(document, path, missing_is_null=True), operation.get("value")):
            raise PatchNotApplicable
    elif kind == "copy":
        # The library copies a missing value as null.
        raw = encode(_find(document, _pointer(operation.get("from")), missing_is_null=True))
        _add(document, path, msgspec.json.decode(raw))
        return len(raw)
    elif kind == "move":
        source = _pointer(operation.get("from"))
        value = _find(document, source)
        _remove(document, source)
        _add(document, path, value)
    else:
        raise PatchNotApplicable
    return 0


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or "/" not in text:
        raise PatchNotApplicable
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _parent(document: Any, path: list[str]) -> Any:
    for part in path[:-1]:
        document = _member(document, part)
        if not isinstance(document, dict | list):
            raise PatchNotApplicable
    return document


def _member(container: Any, part: str) -> Any:
    if isinstance(container, dict):
        return container.get(part)
    return container[_index(container, part, len(container) - 1)]


def _index(container: list[Any], part: str, largest: int) -> int:
    index = _number(part)
    if index < 0:
        index += len(container)
    if not 0 <= index <= largest:
        raise PatchNotApplicable
    return index


def _find(document: Any, path: list[str], missing_is_null: bool = False) -> Any:
    parent = _parent(document, path)
    if isinstance(parent, dict):
        if path[-1] not in parent and not missing_is_null:
            raise PatchNotApplicable
        return parent.get(path[-1])
    return _member(parent, path[-1])


def _add(document: Any, path: list[str], value: Any) -> None:
    parent, last = _parent(document, path), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif last == "-":
        parent.append(value)
    else:
        # One past the end is allowed; counted from the end, -1 is the end.
        if last.startswith("-"):
            last = str(len(parent) + 1 + _number(last))
        parent.insert(_index(parent, last, len(parent)), value)


def _number(text: str) -> int:
    try:
        return atoi(text)
    except NumError:
        raise PatchNotApplicable from None


def _remove(document: Any, path: list[str]) -> None:
    parent, last = _parent(document, path), path[-1]
    if isinstance(parent, dict):
        if last not in parent:
            raise PatchNotApplicable
        del parent[last]
    else:
        del parent[_index(parent, last, len(parent) - 1)]


def _replace(document: Any, path: list[str], value: Any) -> None:
    parent, last = _parent(document, path), path[-1]
    parent[last if isinstance(parent, dict) else _index(parent, last, len(parent) - 1)] = value


def _same(left: Any, right: Any) -> bool:
    """Equality of JSON values; True differs from 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def check_merge(patch: Any, strict: bool) -> None:
    """Raises ApiError 400 for a merge patch that is not an object."""
    if patch is None:
        raise bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        what = unmarshal_text(patch, "Go value of type map[string]interface {}")
        raise bad_request(f"error decoding patch: {what}" if strict else "Invalid JSON Patch")


def merge_patched(document: Tree, patch: Tree) -> Tree:
    """The document with a merge patch applied; the keys of changed objects are sorted."""
    merged = dict(document)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge_patched(merged[key], value)
        else:
            merged[key] = _without_nulls(value)
    return {key: merged[key] for key in sorted(merged)}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value
