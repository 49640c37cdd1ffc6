"""Durations and timestamps of CEL: parsing, formatting, arithmetic and parts.

Source: cel-go v0.26, common/types/duration.go, timestamp.go; Go's time.ParseDuration.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Callable
from typing import Any

from stowplan.cel.overloads import Library
from stowplan.cel.values import INT_MAX, CelDuration, CelTimestamp, EvaluationError, read_digits

NANOS_PER_SECOND = 10**9
_UNITS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9,
    "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip
# Possessive: what can be divided in several ways takes the square of its length to refuse.
_DURATION = re.compile(r"([+-]?)((?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:ns|us|µs|μs|ms|s|m|h))+")
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_STAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9})[0-9]*)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})"
)
_FRACTION_DIGITS = 30
"""Further digits are less than a nanosecond of any unit."""
_OFFSET = re.compile(r"([+-]?)([0-9]{1,2}):([0-9]{2})")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# Years 1 to 9999.
_STAMP_MIN, _STAMP_MAX = -62135596800 * NANOS_PER_SECOND, 253402300799999999999


def parse_duration(text: str) -> CelDuration:
    """`1h30m` as Go reads it; raises EvaluationError."""
    match = _DURATION.fullmatch(text)
    if match is None and text not in ("0", "+0", "-0"):
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Duration'")
    nanos = 0
    for whole, fraction, unit in _PART.findall(text.lstrip("+-")):
        size = _UNITS[unit]
        nanos += read_digits(whole) * size
        fraction = fraction[:_FRACTION_DIGITS]
        if fraction:
            nanos += int(fraction) * size // 10 ** len(fraction)
    return _duration(-nanos if text.startswith("-") else nanos)


def format_duration(value: CelDuration) -> str:
    """A duration in seconds, such as `1.5s`."""
    sign = "-" if value.nanos < 0 else ""
    seconds, nanos = divmod(abs(value.nanos), NANOS_PER_SECOND)
    fraction = f"{nanos:09d}".rstrip("0")
    return f"{sign}{seconds}{'.' + fraction if fraction else ''}s"


def parse_timestamp(text: str) -> CelTimestamp:
    """An RFC 3339 time; raises EvaluationError."""
    match = _STAMP.fullmatch(text)
    if match is None:
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    zone = match[8]
    try:
        moment = datetime.datetime.fromisoformat(f"{text[:19]}+00:00")
    except ValueError:
        text = "type conversion error from 'string' to 'google.protobuf.Timestamp'"
        raise EvaluationError(text) from None
    seconds = (moment - _EPOCH) // datetime.timedelta(seconds=1)
    if zone != "Z":
        offset = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
        seconds -= offset if zone[0] == "+" else -offset
    nanos = int((match[7] or "0").ljust(9, "0"))
    return _timestamp(seconds * NANOS_PER_SECOND + nanos)


def format_timestamp(value: CelTimestamp) -> str:
    """A timestamp in RFC 3339, UTC."""
    seconds, nanos = divmod(value.nanos, NANOS_PER_SECOND)
    moment = _EPOCH + datetime.timedelta(seconds=seconds)
    fraction = f"{nanos:09d}".rstrip("0")
    text = moment.strftime("%m-%dT%H:%M:%S")
    return f"{moment.year:04d}-{text}{'.' + fraction if fraction else ''}Z"


def _duration(nanos: int) -> CelDuration:
    if abs(nanos) > INT_MAX:
        raise EvaluationError("integer overflow")
    return CelDuration(nanos)


def _timestamp(nanos: int) -> CelTimestamp:
    if not _STAMP_MIN <= nanos <= _STAMP_MAX:
        raise EvaluationError("timestamp overflow")
    return CelTimestamp(nanos)


def add_arithmetic(library: Library) -> None:
    """`+` and `-`."""
    add = library.add
    add("add_duration_duration", "_+_(duration, duration) duration",
        lambda a, b: _duration(a.nanos + b.nanos))  # fmt: skip
    add("add_timestamp_duration", "_+_(timestamp, duration) timestamp",
        lambda a, b: _timestamp(a.nanos + b.nanos))  # fmt: skip
    add("add_duration_timestamp", "_+_(duration, timestamp) timestamp",
        lambda a, b: _timestamp(a.nanos + b.nanos))  # fmt: skip
    add("subtract_duration_duration", "_-_(duration, duration) duration",
        lambda a, b: _duration(a.nanos - b.nanos))  # fmt: skip
    add("subtract_timestamp_timestamp", "_-_(timestamp, timestamp) duration",
        lambda a, b: _duration(a.nanos - b.nanos))  # fmt: skip
    add("subtract_timestamp_duration", "_-_(timestamp, duration) timestamp",
        lambda a, b: _timestamp(a.nanos - b.nanos))  # fmt: skip


def add_conversions(library: Library) -> None:
    """Conversions from and to strings and seconds."""
    add = library.add
    add("string_to_duration", "duration(string) duration", parse_duration)
    add("duration_to_string", "string(duration) string", format_duration)
    add("string_to_timestamp", "timestamp(string) timestamp", parse_timestamp)
    add("timestamp_to_string", "string(timestamp) string", format_timestamp)
    add("int64_to_timestamp", "timestamp(int) timestamp",
        lambda seconds: _timestamp(seconds * NANOS_PER_SECOND))  # fmt: skip
    add("timestamp_to_int64", "int(timestamp) int", lambda a: a.nanos // NANOS_PER_SECOND)
    add("int64_to_duration", "duration(int) duration", _duration)
    add("duration_to_int64", "int(duration) int", lambda a: a.nanos)


def _local(value: CelTimestamp, zone: str) -> datetime.datetime:
    moment = _EPOCH + datetime.timedelta(seconds=value.nanos // NANOS_PER_SECOND)
    offset = _OFFSET.fullmatch(zone)
    if offset is not None:
        length = datetime.timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return moment + (-length if offset[1] == "-" else length)
    try:
        return moment.astimezone(zoneinfo.ZoneInfo(zone))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise EvaluationError(f"unknown time zone {zone}") from None


_PARTS: dict[str, Callable[[datetime.datetime], int]] = {
    "getFullYear": lambda at: at.year,
    "getMonth": lambda at: at.month - 1,
    "getDayOfYear": lambda at: at.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda at: at.day - 1,
    "getDate": lambda at: at.day,
    "getDayOfWeek": lambda at: at.isoweekday() % 7,
    "getHours": lambda at: at.hour,
    "getMinutes": lambda at: at.minute,
    "getSeconds": lambda at: at.second,
}


def _truncated(nanos: int, unit: int) -> int:
    return nanos // unit if nanos >= 0 else -(-nanos // unit)


def add_accessors(library: Library) -> None:
    """Parts of timestamps and lengths of durations."""
    for name, part in _PARTS.items():

        def of(value: CelTimestamp, zone: str = "UTC", part: Any = part) -> int:
            return int(part(_local(value, zone)))

        library.add(f"timestamp_{name}", f"timestamp->{name}() int", of)
        library.add(f"timestamp_{name}_with_tz", f"timestamp->{name}(string) int", of)

    def millis(value: CelTimestamp, zone: str = "UTC") -> int:
        return value.nanos % NANOS_PER_SECOND // 10**6

    library.add("timestamp_to_milliseconds", "timestamp->getMilliseconds() int", millis)
    library.add("timestamp_to_millis_tz", "timestamp->getMilliseconds(string) int", millis)
    lengths = (("Hours", 3600 * 10**9), ("Minutes", 60 * 10**9), ("Seconds", 10**9))
    for word, unit in (*lengths, ("Milliseconds", 10**6)):

        def length(value: CelDuration, unit: int = unit) -> int:
            return _truncated(value.nanos, unit)

        library.add(f"duration_get{word}", f"duration->get{word}() int", length)
