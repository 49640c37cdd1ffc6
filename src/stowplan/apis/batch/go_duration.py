"""Durations to the nanosecond, with the errors of Go: the delay of `@every`.

Source: Go 1.24, time.ParseDuration.
"""

from __future__ import annotations

import math
import re
from itertools import takewhile

_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_MAX = 2**63
_DIGITS_MAX = 19
_NUMBER = re.compile(r"([0-9]*+)(?:(\.)([0-9]*+))?")


class GoDurationError(ValueError):
    """A text that is no duration; the text is Go's."""


def parse_nanoseconds(text: str) -> int:
    """Nanoseconds of `1h30m` or `1.5ns`, an int64; parts of one are cut. Raises
    GoDurationError."""
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    if not rest:
        raise _invalid(text)
    total = 0
    while rest:
        found = _NUMBER.match(rest)
        assert found is not None
        whole, point, fraction = found.groups()
        if not whole and not (point and fraction):
            raise _invalid(text)
        rest = rest[found.end() :]
        unit = "".join(takewhile(lambda letter: letter not in ".0123456789", rest))
        rest = rest[len(unit) :]
        total += _nanoseconds(text, whole or "0", fraction or "", unit)
        if total > _MAX:
            raise _invalid(text)
    if text.startswith("-"):
        return -total
    if total == _MAX:
        raise _invalid(text)
    return total


def _nanoseconds(text: str, digits: str, fraction: str, unit: str) -> int:
    """One part of a duration."""
    digits = digits.lstrip("0")
    if len(digits) > _DIGITS_MAX:
        raise _invalid(text)
    whole = 0
    for digit in digits:
        whole = whole * 10 + ord(digit) - ord("0")
    if not unit:
        raise GoDurationError(f"time: missing unit in duration {_quoted(text)}")
    size = _UNITS.get(unit)
    if size is None:
        raise GoDurationError(f"time: unknown unit {_quoted(unit)} in duration {_quoted(text)}")
    if whole > _MAX // size:
        raise _invalid(text)
    # As Go, in doubles; of digits beyond int64 nothing counts.
    part, scale = 0, 1.0
    for digit in fraction:
        following = part * 10 + ord(digit) - ord("0")
        if following > _MAX:
            break
        part, scale = following, scale * 10
    return whole * size + math.trunc(part * (size / scale))


def _invalid(text: str) -> GoDurationError:
    return GoDurationError(f"time: invalid duration {_quoted(text)}")


def _quoted(text: str) -> str:
    """The text in quotes; bytes that are no printable ASCII in hexadecimal."""
    letters = []
    for byte in text.encode():
        letter = chr(byte)
        if letter in '"\\':
            letters.append(f"\\{letter}")
        elif byte < ord(" ") or byte >= 128:
            letters.append(f"\\x{byte:02x}")
        else:
            letters.append(letter)
    return f'"{"".join(letters)}"'
