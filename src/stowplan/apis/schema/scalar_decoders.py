"""Decoders of scalar values: JSON values to canonical form.

A decoder is called `decode(value, at, sink)`. `at` is the location of the value, a chain
`(outer chain, step, owner)`: the step is a field's name, an index or `(key,)` of a map; the owner
is the Go name of the type that has the field, or "". `sink` collects unknown fields.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from typing import Any

from stowplan.apis.machinery.go_format import json_type_name
from stowplan.apis.schema import canonical_quantity, canonical_time

FieldLocation = tuple[Any, Any, str] | None
Decoder = Callable[[Any, FieldLocation, Any], Any]


class TypeMismatch(ValueError):
    """A value of the wrong type; the text is Go's. at: its location."""

    def __init__(self, text: str, at: FieldLocation = None) -> None:
        super().__init__(text)
        self.at = at


def format_path(at: FieldLocation) -> str:
    """`spec.containers[0].image`, for texts about unknown fields."""
    steps: list[str] = []
    while at is not None:
        outer, step, _ = at
        if isinstance(step, int):
            steps.append(f"[{step}]")
        else:
            steps.append("." + (step if isinstance(step, str) else step[0]))
        at = outer
    return "".join(reversed(steps)).removeprefix(".")


_OWN_FIELDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Volume": ("VolumeSource", ("name",)),
    "PersistentVolumeSpec": (
        "PersistentVolumeSource",
        (
            "capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy",
            "storageClassName", "mountOptions", "volumeMode", "nodeAffinity",
            "volumeAttributesClassName",
        ),
    ),
    "Probe": (
        "ProbeHandler",
        (
            "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
            "failureThreshold", "terminationGracePeriodSeconds",
        ),
    ),
    "EphemeralContainer": ("EphemeralContainerCommon", ("targetContainerName",)),
    "IngressRule": ("IngressRuleValue", ("host",)),
    "RuleWithOperations": ("Rule", ("operations",)),
    "NamedRuleWithOperations": ("RuleWithOperations", ("resourceNames",)),
    **dict.fromkeys(
        ("ConfigMapKeySelector", "SecretKeySelector"),
        ("LocalObjectReference", ("key", "optional")),
    ),
    **dict.fromkeys(
        (
            "ConfigMapEnvSource", "SecretEnvSource", "ConfigMapVolumeSource",
            "ConfigMapProjection", "SecretProjection",
        ),
        ("LocalObjectReference", ("items", "defaultMode", "optional")),
    ),
}  # fmt: skip
"""Types that embed another one, which Go names in its errors, and the fields that are their own."""


def _embedded_structs(owner: str, field: str) -> list[str]:
    """The embedded types by which a field is reached, outermost first."""
    found: list[str] = []
    while owner in _OWN_FIELDS and field not in _OWN_FIELDS[owner][1]:
        owner = _OWN_FIELDS[owner][0]
        found.append(owner)
    return found


def type_mismatch(value: Any, at: FieldLocation, go_type: str) -> TypeMismatch:
    """The error of a value of the wrong JSON type."""
    owner, names, place = "", [], at
    while at is not None:
        outer, step, of = at
        if isinstance(step, str):
            names += [step, *reversed(_embedded_structs(of, step))]
            owner = owner or of
        at = outer
    where = f"Go struct field {owner}.{'.'.join(reversed(names))}" if owner else "Go value"
    return TypeMismatch(
        f"json: cannot unmarshal {_kind(value, go_type)} into {where} of type {go_type}", place
    )


def _kind(value: Any, go_type: str) -> str:
    name = json_type_name(value)
    # Go prints the literal only for a number that is out of range.
    is_out_of_range = name == "number" and go_type.startswith(("int", "uint", "float"))
    return f"number {value}" if is_out_of_range else name


def string_decoder(go_type: str) -> Decoder:
    """A string, or a named type of strings."""

    def decode(value: Any, at: FieldLocation, sink: Any) -> Any:
        if type(value) is str:
            return value
        raise type_mismatch(value, at, go_type)

    return decode


def decode_bool(value: Any, at: FieldLocation, sink: Any) -> Any:
    """Decode a bool."""
    if value is True or value is False:
        return value
    raise type_mismatch(value, at, "bool")


def integer_decoder(bits: int) -> Decoder:
    """A decoder of int32 or int64."""
    high = 2 ** (bits - 1)
    go_type = f"int{bits}"

    def decode(value: Any, at: FieldLocation, sink: Any) -> Any:
        if type(value) is int and -high <= value < high:
            return value
        raise type_mismatch(value, at, go_type)

    return decode


def decode_float64(value: Any, at: FieldLocation, sink: Any) -> Any:
    """Decode a float64; whole numbers become integers, as Go prints them."""
    if type(value) is int:
        return value
    if type(value) is float:
        return math.trunc(value) if value.is_integer() and abs(value) < 1e21 else value
    raise type_mismatch(value, at, "float64")


def decode_any(value: Any, at: FieldLocation, sink: Any) -> Any:
    """Decode any JSON value; it is kept unchanged."""
    return value


def quantity_decoder(rounded: bool) -> Decoder:
    """A decoder of quantities. rounded: up to thousandths, as in resource lists."""

    def decode(value: Any, at: FieldLocation, sink: Any) -> Any:
        if type(value) is str or type(value) is int or type(value) is float:
            try:
                return canonical_quantity.canonical_quantity(value, rounded)
            except canonical_quantity.InvalidQuantity as error:
                raise TypeMismatch(str(error), at) from None
        raise TypeMismatch(canonical_quantity.ERR_FORMAT_WRONG, at)

    return decode


def time_decoder(read: Callable[[str], str]) -> Decoder:
    """A decoder of times, as `read` writes them; it raises `canonical_time.InvalidTime`."""

    def decode(value: Any, at: FieldLocation, sink: Any) -> Any:
        if type(value) is not str:
            raise type_mismatch(value, at, "string")
        try:
            return read(value)
        except canonical_time.InvalidTime as error:
            raise TypeMismatch(str(error), at) from None

    return decode


def decode_int_or_string(value: Any, at: FieldLocation, sink: Any) -> Any:
    """Decode an integer or a string."""
    if type(value) is str:
        return value
    if type(value) is int and -(2**31) <= value < 2**31:
        return value
    raise type_mismatch(value, at, "int32")


def decode_bytes(value: Any, at: FieldLocation, sink: Any) -> Any:
    """Decode bytes in base64."""
    if type(value) is not str:
        raise type_mismatch(value, at, "[]uint8")
    kept = value.replace("\n", "").replace("\r", "")
    try:
        return base64.b64encode(base64.b64decode(kept, validate=True)).decode("ascii")
    except (binascii.Error, ValueError):
        raise TypeMismatch(
            f"illegal base64 data at input byte {_invalid_base64_index(kept)}", at
        ) from None


_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def _invalid_base64_index(text: str) -> int:
    """The index in the error of Go's decoder for invalid base64."""
    for at, character in enumerate(text):
        if character not in _BASE64:
            return at
    # The last group of four is incomplete: Go names its first digit.
    return len(text) - len(text) % 4
