"""Values as Go's %v prints them, for error texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stowplan.apis.machinery.strconv import atoi

HEAD_TYPE = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string'
    ' "json:\\"kind,omitempty\\"" }'
)
"""The Go type that the original decodes kind and apiVersion of a body into."""


def unmarshal_text(value: Any, target: str) -> str:
    """The text of Go's decoder for a value of the wrong type."""
    return f"json: cannot unmarshal {json_type_name(value)} into {target}"


def not_an_object_text(value: Any) -> str:
    """The text of the error for JSON that is not an object."""
    why = unmarshal_text(value, f"Go value of type {HEAD_TYPE}")
    return f"couldn't get version/kind; json parse error: {why}"


def go_value(value: Any) -> str:
    """A decoded JSON value: `map[a:1 b:[x y]]`, keys in order, `<nil>` for null."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_value(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_value, value)) + "]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_float(value)
    return str(value)


def go_float(number: float) -> str:
    """A float64: the shortest digits, with an exponent below 1e-4 and from 1e21 on."""
    digits = repr(number)
    if "e" in digits:
        base, exponent = digits.split("e")
        size = atoi(exponent)
        if -5 < size < 21:
            return f"{number:.0f}" if size > 0 else f"{number:f}".rstrip("0")
        return f"{base.removesuffix('.0')}e{'-' if size < 0 else '+'}{abs(size):02}"
    return digits.removesuffix(".0")


def go_type(value: Any) -> str:
    """The type that Go's decoder gives a JSON value."""
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "bool"
    return "float64" if isinstance(value, float) else "int64"


def json_type_name(value: Any) -> str:
    """The name of a JSON value's type in errors of Go's decoder."""
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "bool"
    return "number" if value is not None else "null"


def go_selector(selector: Mapping[str, Any] | None) -> str:
    """A LabelSelector as `%v` prints a pointer to it."""
    if selector is None:
        return "nil"
    labels = sorted((selector.get("matchLabels") or {}).items())
    requirements = "".join(
        f"LabelSelectorRequirement{{Key:{one['key']},Operator:{one['operator']},"
        f"Values:[{' '.join(one.get('values') or ())}],}},"
        for one in selector.get("matchExpressions") or ()
    )
    return (
        "&LabelSelector{MatchLabels:map[string]string{"
        + "".join(f"{key}: {value}," for key, value in labels)
        + "},MatchExpressions:[]LabelSelectorRequirement{"
        + requirements
        + "},}"
    )
