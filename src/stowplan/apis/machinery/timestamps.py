"""Times of API objects, and durations as tables print them.

Source: apimachinery v0.36, util/duration and meta/v1.Time.
"""

from __future__ import annotations

import math
from functools import lru_cache

from stowplan.apis.machinery.text_cache import cache_short_texts

_DAY = 86400


@lru_cache(maxsize=1024)
def _format_second(second: int) -> str:
    days, rest = divmod(second, _DAY)
    year, month, day = _civil(days)
    return f"{year:04}-{month:02}-{day:02}T{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}Z"


def format_time(now: float) -> str:
    """`2001-01-01T00:00:00Z`: a Unix time, truncated to seconds."""
    return _format_second(math.floor(now))


def format_micro_time(now: float) -> str:
    """`2001-01-01T00:00:00.000000Z`: a Unix time, truncated to microseconds."""
    micros = math.floor(now * 1_000_000)
    return f"{_format_second(micros // 1_000_000)[:-1]}.{micros % 1_000_000:06}Z"


def add_seconds(moment: float, seconds: int) -> float:
    """A time plus seconds as Go adds them: a duration is an int64 of nanoseconds, which overflows
    at 292 years."""
    half = 1 << 63
    return moment + ((seconds * 1_000_000_000 + half) % (2 * half) - half) / 1e9


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970."""
    days += 719_468
    era, day_of_era = divmod(days, 146_097)
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, day


def _days(year: int, month: int, day: int) -> int:
    """The inverse of `_civil`."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - 719_468


@cache_short_texts(4096)
def parse_time(text: str) -> float:
    """Unix time of a timestamp as `format_time` or `format_micro_time` formats it."""
    days = _days(int(text[0:4]), int(text[5:7]), int(text[8:10]))
    whole = days * _DAY + int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:19])
    fraction = text[19:].rstrip("Z")
    return whole + (float(f"0{fraction}") if fraction else 0.0)


def human_age(then: str | None, now: float) -> str:
    """The age since a timestamp as tables print it; `<unknown>` without one."""
    try:
        return human_duration(now - parse_time(then)) if then else "<unknown>"
    except ValueError:
        # Stored by a release that did not pad years to four digits.
        return "<invalid>"


def human_duration(seconds: float) -> str:
    """A duration as tables print it: 5s, 3m10s, 2h, 4d, 2y."""
    whole = math.trunc(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 10:
        return _joined(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _joined(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _joined(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 2920:
        return _joined(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _joined(big: int, big_unit: str, small: int, small_unit: str) -> str:
    return f"{big}{big_unit}{small}{small_unit}" if small else f"{big}{big_unit}"
