"""Codecs of single values: canonical JSON values to payloads of protobuf fields, and back.

Source: k8s.io/apimachinery: Time, MicroTime, Quantity, IntOrString, RawExtension and FieldsV1 as
recorded pairs show them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from stowplan.apis.machinery.strconv import atoi
from stowplan.apis.protobuf.wire_format import (
    Payload,
    WireError,
    bytes_field,
    read_pairs,
    signed,
    varint_field,
)

_EPOCH, _SECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(seconds=1)


class ValueCodec(NamedTuple):
    """is_varint: the payload is a number. encode: of a JSON value. decode: raises WireError."""

    is_varint: bool
    encode: Callable[[Any], Payload]
    decode: Callable[[Payload], Any]


def as_bytes(payload: Payload) -> bytes:
    """A payload that has to be bytes. Raises WireError."""
    if isinstance(payload, int):
        raise WireError("a number in place of bytes")
    return payload


def as_number(payload: Payload) -> int:
    """A payload that has to be a number, as int64. Raises WireError."""
    if isinstance(payload, bytes):
        raise WireError("bytes in place of a number")
    return signed(payload)


def as_text(payload: Payload) -> str:
    """A payload that has to be text. Raises WireError."""
    try:
        return as_bytes(payload).decode()
    except UnicodeDecodeError as error:
        raise WireError(str(error)) from None


def _base64_bytes(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise WireError(str(error)) from None


def _in_message(text: str | None) -> bytes:
    return bytes_field(1, (text or "").encode())


def _from_message(payload: Payload) -> str:
    return as_text(read_pairs(as_bytes(payload)).get(1, b""))


def _time_message(value: str | None) -> bytes:
    if value is None:
        return b""
    whole, _, fraction = value.rstrip("Z").partition(".")
    seconds = (datetime.fromisoformat(whole).replace(tzinfo=UTC) - _EPOCH) // _SECOND
    nanos = atoi(fraction.ljust(9, "0")) if fraction else 0
    return varint_field(1, seconds) + varint_field(2, nanos)


def _moment(payload: Payload) -> tuple[datetime, int] | None:
    parts = read_pairs(as_bytes(payload))
    if not parts:
        return None
    try:
        at = _EPOCH + timedelta(seconds=as_number(parts.get(1, 0)))
    except OverflowError as error:
        raise WireError(f"a time: {error}") from None
    return at, as_number(parts.get(2, 0))


def _time_text(payload: Payload) -> str | None:
    found = _moment(payload)
    return None if found is None else f"{_year_padded(found[0])}Z"


def _micro_time_text(payload: Payload) -> str | None:
    found = _moment(payload)
    return None if found is None else f"{_year_padded(found[0])}.{found[1] // 1000:06}Z"


def _year_padded(at: datetime) -> str:
    return f"{at.year:04}-{at:%m-%dT%H:%M:%S}"


def _int_or_string(value: str | int) -> bytes:
    if isinstance(value, str):
        kind, number, text = 1, 0, value
    else:
        kind, number, text = 0, value, ""
    return varint_field(1, kind) + varint_field(2, number) + bytes_field(3, text.encode())


def _from_int_or_string(payload: Payload) -> str | int:
    parts = read_pairs(as_bytes(payload))
    if as_number(parts.get(1, 0)):
        return as_text(parts.get(3, b""))
    return as_number(parts.get(2, 0))


def _raw_json(value: Any) -> bytes:
    return b"" if value is None else bytes_field(1, msgspec.json.encode(value))


def _from_raw_json(payload: Payload) -> Any:
    parts = read_pairs(as_bytes(payload))
    raw = as_bytes(parts.get(1, b""))
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise WireError(f"JSON in a message: {error}") from None


TEXT = ValueCodec(False, lambda value: value.encode(), as_text)
NUMBER = ValueCodec(True, lambda value: value, as_number)
BOOL = ValueCodec(True, lambda value: 1 if value else 0, lambda payload: bool(as_number(payload)))
SCALARS: dict[str, ValueCodec] = {
    "int32": NUMBER,
    "int64": NUMBER,
    "bool": BOOL,
    "[]uint8": ValueCodec(
        False, _base64_bytes, lambda payload: base64.b64encode(as_bytes(payload)).decode()
    ),
    "resource.Quantity": ValueCodec(False, _in_message, _from_message),
    "v1.Time": ValueCodec(False, _time_message, _time_text),
    "v1.MicroTime": ValueCodec(False, _time_message, _micro_time_text),
    "intstr.IntOrString": ValueCodec(False, _int_or_string, _from_int_or_string),
    "runtime.RawExtension": ValueCodec(False, _raw_json, _from_raw_json),
}
"""By the name of Go's type; all others are text."""
