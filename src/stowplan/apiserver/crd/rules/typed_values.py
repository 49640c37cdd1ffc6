"""Values of CEL for JSON values under a schema.

Source: apiserver v1.36, pkg/cel/common/valuesunstructured.go.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

from stowplan.apis.machinery.strconv import saturated_int
from stowplan.apiserver.crd.rules.declared_types import with_object_head
from stowplan.apiserver.crd.rules.field_names import escaped_name
from stowplan.apiserver.crd.structural_schema import EMBEDDED
from stowplan.apiserver.crd.value_validation import INT_OR_STRING, LIST_TYPE
from stowplan.cel.libraries.moments import parse_timestamp
from stowplan.cel.values import CelDuration, EvaluationError, MapValue, SetList, with_keys
from stowplan.objects.encoding.tree import Tree

_UNITS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "second": 10**9, "seconds": 10**9,
    "m": 60 * 10**9, "minute": 60 * 10**9, "minutes": 60 * 10**9, "h": 3600 * 10**9,
    "hour": 3600 * 10**9, "hours": 3600 * 10**9, "d": 86400 * 10**9, "day": 86400 * 10**9,
    "days": 86400 * 10**9, "w": 7 * 86400 * 10**9,
}  # fmt: skip
_DURATION_PART = re.compile(r"([0-9]+)(?:\.([0-9]*))?\s*([a-zµ]+)")
_N_FRACTION_DIGITS_MAX = 18
"""More do not change a nanosecond count, and these fit int64."""


def json_value(value: Any) -> Any:
    """A JSON value as CEL has it where nothing is known of its type."""
    if isinstance(value, dict):
        return MapValue((key, json_value(one)) for key, one in value.items())
    if isinstance(value, list | tuple):
        return tuple(json_value(one) for one in value)
    return value


def typed_value(value: Any, node: Tree, is_root: bool = False) -> Any:
    """A JSON value that is valid under a schema; raises EvaluationError for one that is not."""
    if value is None or node.get(INT_OR_STRING):
        return value
    if isinstance(value, dict):
        return _object(value, with_object_head(node) if is_root or node.get(EMBEDDED) else node)
    if isinstance(value, list):
        return _list(value, node)
    kind = node.get("type", "")
    if isinstance(value, str):
        read = _TEXTS.get(node.get("format", "")) if kind == "string" else None
        return value if read is None else read(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if kind == "number" else int(value) if kind == "integer" else value
    return value


def _object(value: Tree, node: Tree) -> MapValue:
    properties: Tree = node.get("properties") or {}
    rest = node.get("additionalProperties")
    if not properties and isinstance(rest, dict):
        return MapValue((key, typed_value(one, rest)) for key, one in value.items())
    pairs = []
    for key, one in value.items():
        if one is None:
            # A field without a value is absent.
            continue
        if key not in properties:
            pairs.append((f"\0{key}", json_value(one)))
            continue
        identifier = escaped_name(key)
        if identifier:
            pairs.append((identifier, typed_value(one, properties[key])))
    return MapValue(pairs)


def _list(value: list[Any], node: Tree) -> tuple[Any, ...]:
    items = node.get("items") or {}
    made = tuple(typed_value(one, items) for one in value)
    kind = node.get(LIST_TYPE)
    if kind == "set":
        return SetList(made)
    if kind == "map":
        keys = node.get("x-kubernetes-list-map-keys") or ()
        return with_keys(made, tuple(escaped_name(key) or key for key in keys))
    return made


def _duration(text: str) -> CelDuration:
    nanos = 0
    for whole, fraction, unit in _DURATION_PART.findall(text):
        size = _UNITS.get(unit)
        if size is None:
            raise EvaluationError(f"Invalid duration {text}")
        nanos += saturated_int(whole) * size
        if fraction:
            digits = fraction[:_N_FRACTION_DIGITS_MAX]
            nanos += saturated_int(digits) * size // 10 ** len(digits)
    return CelDuration(-nanos if text.startswith("-") else nanos)


def _date_time(text: str) -> Any:
    upper = text.upper().replace(" ", "T")
    if re.search(r"(?:Z|[+-]\d\d:\d\d)$", upper) is None:
        upper += "Z"
    return parse_timestamp(upper)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise EvaluationError(f"Invalid byte formatted string {text}") from None


_TEXTS: dict[str, Callable[[str], Any]] = {
    "duration": _duration,
    "date": lambda text: parse_timestamp(f"{text}T00:00:00Z"),
    "date-time": _date_time,
    "byte": _decoded,
}
