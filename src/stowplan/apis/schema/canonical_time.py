"""Canonical form of times: RFC 3339 in, UTC out, with Go's parse errors.

Source: apimachinery v0.36, meta/v1: time.go, micro_time.go; Go's time.Parse.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from stowplan.apis.machinery.text_cache import cache_short_texts

RFC3339 = "2006-01-02T15:04:05Z07:00"
RFC3339_MICRO = "2006-01-02T15:04:05.000000Z07:00"

_ZULU = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ", re.ASCII
)
_DIGITS = {
    "2006": re.compile(r"[0-9]{4}"),
    "01": re.compile(r"[0-9]{2}"),
    "02": re.compile(r"[0-9]{2}"),
    "15": re.compile(r"[0-9]{2}"),
    "04": re.compile(r"[0-9]{2}"),
    "05": re.compile(r"[0-9]{2}"),
    ".000000": re.compile(r"\.[0-9]{6}"),
    "Z07:00": re.compile(r"Z|[+-][0-9]{2}:[0-9]{2}"),
}
_PIECES = re.compile(r"2006|01|02|15|04|05|\.000000|Z07:00|[^0-9Z]")
_FRACTION = re.compile(r"[.,][0-9]+")
_RANGES = {
    "01": (1, 12, "month"),
    "15": (0, 23, "hour"),
    "04": (0, 59, "minute"),
    "05": (0, 59, "second"),
}


class InvalidTime(ValueError):
    """The text is Go's."""


@cache_short_texts(1 << 12)
def canonical_time(text: str) -> str:
    """A time in UTC with seconds; raises InvalidTime."""
    if _ZULU.fullmatch(text):
        return text
    return _read(text, RFC3339).isoformat(timespec="seconds").replace("+00:00", "Z")


@cache_short_texts(1 << 10)
def canonical_micro_time(text: str) -> str:
    """A time in UTC with microseconds; raises InvalidTime."""
    return _read(text, RFC3339_MICRO).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _read(text: str, layout: str) -> datetime:
    """Parse `text` by a Go layout; the time in UTC."""
    parts: dict[str, str] = {}
    rest = text
    for piece in _PIECES.findall(layout):
        pattern = _DIGITS.get(piece)
        if pattern is None:
            if not rest.startswith(piece):
                raise _parse_error(text, layout, rest, piece)
            rest = rest[len(piece) :]
            continue
        found = pattern.match(rest)
        if found is None:
            raise _parse_error(text, layout, rest, piece)
        parts[piece] = found[0]
        rest = rest[found.end() :]
        _check_range(text, piece, found[0])
        # A fraction may follow the seconds even where the layout has none.
        if piece == "05" and layout is RFC3339 and (fraction := _FRACTION.match(rest)):
            rest = rest[fraction.end() :]
    if rest:
        raise InvalidTime(f"parsing time {_quoted(text)}: extra text: {_quoted(rest)}")
    return _format_utc(text, parts)


def _check_range(text: str, piece: str, digits: str) -> None:
    if piece in _RANGES:
        low, high, name = _RANGES[piece]
        if not low <= int(digits) <= high:
            raise InvalidTime(f"parsing time {_quoted(text)}: {name} out of range")


def _format_utc(text: str, parts: dict[str, str]) -> datetime:
    zone = parts["Z07:00"]
    offset = timedelta(0)
    if zone != "Z":
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
        offset = -offset if zone[0] == "-" else offset
    try:
        made = datetime(
            int(parts["2006"]),
            int(parts["01"]),
            int(parts["02"]),
            int(parts["15"]),
            int(parts["04"]),
            int(parts["05"]),
            int(parts.get(".000000", ".0")[1:]),
            tzinfo=timezone(offset),
        )
        return made.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidTime(f"parsing time {_quoted(text)}: day out of range") from None


def _parse_error(text: str, layout: str, rest: str, piece: str) -> InvalidTime:
    return InvalidTime(
        f"parsing time {_quoted(text)} as {_quoted(layout)}: "
        f"cannot parse {_quoted(rest)} as {_quoted(piece)}"
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
