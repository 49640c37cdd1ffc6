"""Errors of the API server: exceptions that encode to the Status object a client receives.

Source: apimachinery v0.36, api/errors and api/validation/field; texts as recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stowplan.objects.encoding.tree import Tree

INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
DUPLICATE = "FieldValueDuplicate"
NOT_SUPPORTED = "FieldValueNotSupported"
FORBIDDEN = "FieldValueForbidden"
NOT_FOUND = "FieldValueNotFound"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
TYPE_INVALID = "FieldValueTypeInvalid"


CAUSES_MAX = 1_000
"""Causes in one error. Validation is lazy, so causes beyond it are not computed."""
CAUSES_BYTES_MAX = 1 << 20
"""Length of all texts, beyond which no further cause is added."""
MORE_CAUSES = "Too many: there are more errors, which are left out"


class BodyDecodeError(ValueError):
    """A body with a value of the wrong type; the text is that of Go's decoder."""


class Cause(msgspec.Struct, frozen=True):
    """One invalid field of an object. field: its path, `spec.containers[0].name`.

    reason: one of the constants above. message: the text after the path, as in
    `details.causes` (`Invalid value: "x": must be ...`); the functions below format it.
    """

    field: str
    reason: str
    message: str


_GO_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
}


def _escaped_letter(letter: str) -> str:
    if letter in _GO_ESCAPES:
        return _GO_ESCAPES[letter]
    code = ord(letter)
    if letter.isprintable():
        return letter
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def go_quoted(text: str) -> str:
    """A string as Go's %q prints it."""
    return f'"{"".join(map(_escaped_letter, text))}"'


def value_text(value: object) -> str:
    """A value as causes print it: strings quoted, numbers bare, anything else as JSON."""
    if isinstance(value, str):
        return go_quoted(value)
    if value is None:
        return "null"
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for mark, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(mark, escape)
    return text


def invalid(field: str, value: object, text: str) -> Cause:
    """`field: Invalid value: value: text`."""
    return Cause(field, INVALID, f"Invalid value: {value_text(value)}: {text}")


def required(field: str, text: str = "") -> Cause:
    """`field: Required value: text`."""
    return Cause(field, REQUIRED, "Required value" + (f": {text}" if text else ""))


def duplicate(field: str, value: object) -> Cause:
    """`field: Duplicate value: value`."""
    return Cause(field, DUPLICATE, f"Duplicate value: {value_text(value)}")


def not_supported(field: str, value: object, wanted: Iterable[str]) -> Cause:
    """`field: Unsupported value: value: supported values: ...`; `wanted` in the order to print."""
    listed = ", ".join(go_quoted(each) for each in wanted)
    tail = f": supported values: {listed}" if listed else ""
    return Cause(field, NOT_SUPPORTED, f"Unsupported value: {value_text(value)}{tail}")


def forbidden_field(field: str, text: str) -> Cause:
    """`field: Forbidden: text`."""
    return Cause(field, FORBIDDEN, f"Forbidden: {text}")


def not_found_field(field: str, value: object) -> Cause:
    """`field: Not found: value`."""
    return Cause(field, NOT_FOUND, f"Not found: {value_text(value)}")


def too_long(field: str, bytes_max: int) -> Cause:
    """`field: Too long: may not be more than N bytes`."""
    return Cause(field, TOO_LONG, f"Too long: may not be more than {bytes_max} bytes")


def too_many(field: str, count: int, count_max: int) -> Cause:
    """`field: Too many: N: must have at most M items`."""
    unit = "item" if count_max == 1 else "items"
    return Cause(field, TOO_MANY, f"Too many: {count}: must have at most {count_max} {unit}")


def bounded_causes(causes: Iterable[Cause]) -> list[Cause]:
    """The first causes, and one that says that more are left out.

    Differs: the original returns all causes, gigabytes for some bodies of a few MB.
    """
    found: list[Cause] = []
    length = 0
    for cause in causes:
        if len(found) >= CAUSES_MAX or length >= CAUSES_BYTES_MAX:
            found.append(Cause("", TOO_MANY, MORE_CAUSES))
            break
        found.append(cause)
        length += len(cause.message)
    return found


class ApiError(Exception):
    """An API error: HTTP code, machine-readable reason, text and details of a Status.

    headers: more headers of the response (Retry-After, WWW-Authenticate). after: seconds by which
    the response is delayed. token: a continue token for the metadata.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        after: float = 0.0,
        token: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers
        self.after = after
        self.token = token

    def status(self) -> Tree:
        """The Status object; a reason of "" and details of None are left out, as Go leaves them."""
        tree: Tree = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.token} if self.token else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            tree["reason"] = self.reason
        if self.details is not None:
            tree["details"] = dict(self.details)
        tree["code"] = self.code
        return tree


def success_status(details: Mapping[str, Any] | None = None, code: int = 0) -> Tree:
    """The Status object of a success: code 201 after a binding, details after a deletion."""
    tree: Tree = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        tree["details"] = dict(details)
    if code:
        tree["code"] = code
    return tree


def _status_details(group: str, kind: str, name: str = "", uid: str = "") -> Tree:
    details: Tree = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    if uid:
        details["uid"] = uid
    return details


def qualified_resource(group: str, plural: str) -> str:
    """`pods`, `deployments.apps`: a resource as error texts name it."""
    return f"{plural}.{group}" if group else plural


def not_found(group: str, plural: str, name: str) -> ApiError:
    """404: `pods "p" not found`."""
    text = f'{qualified_resource(group, plural)} "{name}" not found'
    return ApiError(404, "NotFound", text, _status_details(group, plural, name))


def no_such_path() -> ApiError:
    """404 of a group, version or resource that is not served."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, plural: str, name: str) -> ApiError:
    """409: `pods "p" already exists`."""
    text = f'{qualified_resource(group, plural)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", text, _status_details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    """409: `Operation cannot be fulfilled on pods "p": why`."""
    text = f'Operation cannot be fulfilled on {qualified_resource(group, plural)} "{name}": {why}'
    return ApiError(409, "Conflict", text, _status_details(group, plural, name))


OBJECT_MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def forbidden(group: str, plural: str, name: str, why: str) -> ApiError:
    """403: `pods "p" is forbidden: why`; without a name `pods is forbidden: why`."""
    subject = qualified_resource(group, plural) + (f' "{name}"' if name else "")
    text = f"{subject} is forbidden: {why}"
    return ApiError(403, "Forbidden", text, _status_details(group, plural, name))


def aggregated(texts: list[str]) -> str:
    """Several errors in one text: `[a, b]`, or the only one."""
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def invalid_object(group: str, kind: str, name: str, causes: Iterable[Cause]) -> ApiError:
    """422: `Pod "p" is invalid: ...`; the text has each cause once."""
    found = bounded_causes(causes)
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in found))
    details = _status_details(group, kind, name)
    details["causes"] = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in found
    ]
    subject = f"{kind}.{group}" if group else kind
    return ApiError(422, "Invalid", f'{subject} "{name}" is invalid: {aggregated(texts)}', details)


def bad_request(text: str) -> ApiError:
    """400 with this text."""
    return ApiError(400, "BadRequest", text)


def method_not_allowed() -> ApiError:
    """405 of a verb that the resource does not support."""
    text = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", text, {})


def expired(text: str) -> ApiError:
    """410 of a version or continue token that is compacted."""
    return ApiError(410, "Expired", text)


def internal_error(text: str) -> ApiError:
    """500: `Internal error occurred: text`."""
    return ApiError(
        500, "InternalError", f"Internal error occurred: {text}", {"causes": [{"message": text}]}
    )


def too_many_requests(text: str, seconds: int) -> ApiError:
    """429, with Retry-After unless `seconds` is 0."""
    details = {"retryAfterSeconds": seconds} if seconds else {}
    headers = (("Retry-After", str(seconds)),) if seconds else ()
    return ApiError(429, "TooManyRequests", text, details, headers)
