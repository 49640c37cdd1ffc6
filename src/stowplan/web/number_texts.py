"""Numbers with units, as texts; `static/number_texts.js` writes the same."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal

_TIMES = ((86_400, "d"), (3600, "h"), (60, "m"))


def text_of(value: object, unit: str = "number") -> str:
    """A value in a unit: `percent`, `time` (seconds), `count`, `number` or `text`; "" for None."""
    if value is None:
        return ""
    if unit == "text" or isinstance(value, str | bool) or not isinstance(value, int | float):
        return str(value)
    if not math.isfinite(value):
        return str(value)
    match unit:
        case "percent":
            return f"{_trimmed(value, 3)}%"
        case "time":
            return time_text(value)
        case "count":
            return _fixed(value, 0 if float(value).is_integer() else 1)
    return _trimmed(value)


def time_text(seconds: float) -> str:
    """`1d4h`, `3h20m`, `5m30s`, `12.5s` or `10ms`: at most two units."""
    if seconds < 0:
        return f"-{time_text(-seconds)}"
    if seconds < 1:
        return "0s" if seconds == 0 else f"{_trimmed(seconds * 1000)}ms"
    if seconds < 60:
        return f"{_trimmed(seconds)}s"
    whole = math.floor(seconds + 0.5)
    parts: list[str] = []
    for size, name in (*_TIMES, (1, "s")):
        count, whole = divmod(whole, size)
        if count or parts:
            parts.append(f"{count}{name}" if count else "")
    return "".join(parts[:2])


def _trimmed(value: float, digits: int = 4) -> str:
    """So many digits that count, all of a whole number; separators, no trailing zeros."""
    size = abs(value)
    if size >= 1000:
        return _fixed(value, 0)
    decimals = 3 if size == 0 else max(0, min(6, digits - 1 - math.floor(math.log10(size))))
    text = _fixed(value, decimals)
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def _fixed(value: float, decimals: int) -> str:
    """With separators; ties away from zero, as in browsers."""
    rounded = Decimal(value).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)
    return f"{rounded:,.{decimals}f}"
