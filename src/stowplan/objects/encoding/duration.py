"""Durations as Kubernetes writes them: `300ms`, `15s`, `1h30m`.

Source: Go's time.ParseDuration and Duration.String, which Kubernetes' metav1.Duration uses.
Differs: fractions of a microsecond are refused, because no timeout here could keep them.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from stowplan.objects.quantity import INT64_MAX

SECOND = 1_000_000_000
"""One second in nanoseconds, the unit of all times in the scheduler."""

_NANOS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_LENGTH_MAX = 100

WANTED = "a duration such as 300ms, 15s or 1h30m"


def parse(text: str) -> timedelta:
    """Parse a duration; raises ValueError, whose text is what is expected."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    sign = -1 if text[:1] == "-" else 1
    if unsigned == "0":
        return timedelta(0)
    parts = _PART.findall(unsigned) if len(text) <= _LENGTH_MAX else []
    if not parts or "".join(number + unit for number, unit in parts) != unsigned:
        raise ValueError(WANTED)
    nanos = sum(int(Fraction(number) * _NANOS[unit]) for number, unit in parts)
    if nanos > INT64_MAX:
        raise ValueError("a duration below 293 years")
    micros, rest = divmod(nanos, 1000)
    if rest:
        raise ValueError("a duration of whole microseconds")
    return timedelta(microseconds=sign * micros)


def render(duration: timedelta) -> str:
    """Format a duration as Go does: `1h30m0s`, `2.5s`, `300ms`, `0s`."""
    micros = duration // timedelta(microseconds=1)
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    if micros == 0:
        return "0s"
    if micros < 1000:
        return f"{sign}{micros}µs"
    if micros < 10**6:
        return f"{sign}{_decimal(micros, 3)}ms"
    minutes, micros = divmod(micros, 60 * 10**6)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(micros, 6)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _decimal(count: int, places: int) -> str:
    """`count / 10**places` without trailing zeros."""
    whole, fraction = divmod(count, 10**places)
    digits = f"{fraction:0{places}}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)
