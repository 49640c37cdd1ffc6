"""The wire format of protobuf: varints, and fields of a number and a payload.

Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5
Payload = int | bytes
"""A varint, or the bytes of a text, message or fixed number."""
PAIRS_MAX = 4
"""Fields in a small message, which has at most four."""
_VARINT_BYTES_MAX = 10
_UINT64 = 2**64


class WireError(ValueError):
    """Bytes that are no protobuf message."""


def read_fields(data: bytes) -> Iterator[tuple[int, Payload]]:
    """Number and payload of each field. Raises WireError."""
    at, end = 0, len(data)
    while at < end:
        key, at = _read_varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = _read_varint(data, at)
            yield number, value
            continue
        if wire == BYTES:
            size, at = _read_varint(data, at)
        elif wire in (FIXED_64, FIXED_32):
            size = 8 if wire == FIXED_64 else 4
        else:
            raise WireError(f"field {number}: wire type {wire}")
        if size > end - at:
            raise WireError("unexpected EOF")
        yield number, data[at : at + size]
        at += size


def read_pairs(data: bytes) -> dict[int, Payload]:
    """Fields of a small message, such as a time or an entry of a map: number -> payload, the last
    one where a number is repeated. Raises WireError."""
    fields = list(islice(read_fields(data), PAIRS_MAX + 1))
    if len(fields) > PAIRS_MAX:
        raise WireError(f"more than {PAIRS_MAX} fields in a small message")
    return dict(fields)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for position in range(at, min(at + _VARINT_BYTES_MAX, len(data))):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % _UINT64, position + 1
        shift += 7
    raise WireError("unexpected EOF")


def signed(value: int) -> int:
    """A varint as an int64."""
    return value - _UINT64 if value >= _UINT64 >> 1 else value


def varint(value: int) -> bytes:
    """A varint; negative numbers take ten bytes."""
    value %= _UINT64
    if value < 0x80:
        return _SMALL[value]
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


_SMALL = [bytes((n,)) for n in range(0x80)]


def varint_field(number: int, value: int) -> bytes:
    """A field with a varint."""
    return varint(number << 3) + varint(value)


def bytes_field(number: int, payload: bytes) -> bytes:
    """A field with bytes."""
    return b"".join((varint(number << 3 | BYTES), varint(len(payload)), payload))
