"""Schedules of CronJobs: `*/5 * * * *`, `@hourly`, `@every 90s`, in a time zone.

Time zones come from `zoneinfo`. It reads the system's tz database, but no clock: a zone is constant
data, as Unicode tables are, and Go's time.LoadLocation reads the same files where the original
runs. A zone that the system lacks is refused by name.

Source: github.com/robfig/cron v3 (parser.go, spec.go, constantdelay.go), which CronJobs use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from stowplan.apis.batch.go_duration import GoDurationError, parse_nanoseconds
from stowplan.apis.machinery.strconv import NumError, atoi
from stowplan.objects.encoding.duration import SECOND

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_YEARS_AHEAD_MAX = 5
_HOUR = 3600
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "


class ScheduleError(ValueError):
    """A schedule or time zone that cannot be read; the text is the original's."""


class CronSchedule(Protocol):
    """When a CronJob is due."""

    def next_after(self, moment: float) -> int | None:
        """The first due time after `moment` (Unix seconds); None if the next five years have
        none."""
        ...


class _FieldRange(NamedTuple):
    """Lowest and highest value of a field, and names of values from `low` on."""

    low: int
    high: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _FieldRange(0, 59),
    _FieldRange(0, 23),
    _FieldRange(1, 31),
    _FieldRange(1, 12, _MONTHS),
    _FieldRange(0, 6, _WEEKDAYS),
)
"""Minute, hour, day of the month, month, day of the week."""


class _Field(NamedTuple):
    """Values of one field. is_star: it is `*`, `?` or a list with one of them."""

    values: frozenset[int]
    is_star: bool


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """`@every DURATION`. delay_s: whole seconds, at least 1."""

    delay_s: int

    def next_after(self, moment: float) -> int | None:
        """`moment`, cut to a second, plus the delay."""
        return math.floor(moment) + self.delay_s


@dataclass(frozen=True, slots=True)
class FiveFields:
    """Minute, hour, day of month, month, day of week; in the wall time of a zone."""

    minute: _Field
    hour: _Field
    day: _Field
    month: _Field
    weekday: _Field
    zone: ZoneInfo | None

    def next_after(self, moment: float) -> int | None:
        """The first matching second after `moment`.

        A wall time that a zone skips is not due on that day; one that occurs twice is due twice,
        if the hour field is `*` or names it.
        """
        fields = (self.minute, self.hour, self.day, self.month, self.weekday)
        if not all(field.values for field in fields):
            return None
        at = math.floor(moment) + 1
        year_max = self._local(at).year + _YEARS_AHEAD_MAX
        while self._local(at).year <= year_max:
            following = self._later(at)
            if following == at:
                return at
            at = following
        return None

    def _later(self, at: int) -> int:
        """The earliest second from `at` on that can match as far as the first wrong field tells."""
        local = self._local(at)
        if local.month not in self.month.values:
            years, month = divmod(local.month, 12)
            return self._unix(local.year + years, month + 1, 1)
        if not self._is_day(local):
            following = local.date() + timedelta(days=1)
            return self._unix(following.year, following.month, following.day)
        if local.hour not in self.hour.values:
            # Hours advance in absolute time, so that skipped and repeated ones are walked once.
            return at - at % 60 - local.minute * 60 + _HOUR
        if local.minute not in self.minute.values:
            return at - at % 60 + 60
        return at if at % 60 == 0 else at - at % 60 + 60

    def _is_day(self, local: datetime) -> bool:
        by_date = local.day in self.day.values
        by_week = (local.weekday() + 1) % 7 in self.weekday.values
        if self.day.is_star or self.weekday.is_star:
            return by_date and by_week
        return by_date or by_week

    def _local(self, at: int) -> datetime:
        moment = _EPOCH + timedelta(seconds=at)
        return moment if self.zone is None else moment.astimezone(self.zone)

    def _unix(self, year: int, month: int, day: int) -> int:
        """Unix time at which a day begins; where a zone skips midnight, the end of the gap."""
        start = datetime(year, month, day, tzinfo=self.zone or UTC)
        return (start - _EPOCH) // timedelta(seconds=1)


def parse_schedule(text: str, time_zone: str = "") -> CronSchedule:
    """Parse a schedule. time_zone: of the wall time; "": UTC, or the text's own `TZ=` or
    `CRON_TZ=`. Raises ScheduleError."""
    if not text:
        raise ScheduleError("empty spec string")
    if text.startswith(("TZ=", "CRON_TZ=")):
        head, _, text = text.partition(" ")
        time_zone = head.partition("=")[2]
        try:
            load_time_zone(time_zone)
        except ScheduleError as error:
            raise ScheduleError(f"provided bad location {time_zone}: {error}") from None
        text = text.strip()
    if text.startswith(_EVERY):
        return _parse_delay(text[len(_EVERY) :])
    if text.startswith("@") and text not in _DESCRIPTORS:
        raise ScheduleError(f"unrecognized descriptor: {text}")
    parts = _DESCRIPTORS.get(text, text).split()
    if len(parts) != len(_FIELDS):
        found = f"found {len(parts)}: [{' '.join(parts)}]"
        raise ScheduleError(f"expected exactly {len(_FIELDS)} fields, {found}")
    fields = zip(parts, _FIELDS, strict=True)
    minute, hour, day, month, weekday = (_parse_field(part, field) for part, field in fields)
    return FiveFields(minute, hour, day, month, weekday, load_time_zone(time_zone))


def load_time_zone(name: str) -> ZoneInfo | None:
    """A zone of the tz database by name; None (UTC) for "" and "UTC". Raises ScheduleError."""
    if name in ("", "UTC"):
        return None
    try:
        return ZoneInfo(name)
    # OSError: a folder of the database, such as Europe.
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError(f"unknown time zone {name}") from None


def format_in_zone(moment: int, zone: ZoneInfo | None) -> str:
    """RFC 3339 text of a time in a zone; an offset of 0 is written Z, as Go does."""
    text = (_EPOCH + timedelta(seconds=moment)).astimezone(zone or UTC).isoformat()
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def format_rfc1123(moment: int) -> str:
    """`Mon, 02 Jan 2006 15:04:05 +0000`: a time in UTC."""
    at = _EPOCH + timedelta(seconds=moment)
    weekday = _WEEKDAYS[(at.weekday() + 1) % 7].capitalize()
    month = _MONTHS[at.month - 1].capitalize()
    return f"{weekday}, {at.day:02} {month} {at.year:04} {at:%H:%M:%S} +0000"


def _parse_delay(text: str) -> FixedDelay:
    try:
        delay = parse_nanoseconds(text)
    except GoDurationError as error:
        # The descriptor as a whole, as the original writes it.
        raise ScheduleError(f"failed to parse duration {_EVERY}{text}: {error}") from None
    return FixedDelay(max(1, delay // SECOND))


def _parse_field(text: str, allowed: _FieldRange) -> _Field:
    found = [_parse_range(each, allowed) for each in text.split(",") if each]
    values = frozenset(value for each in found for value in each.values)
    return _Field(values, any(each.is_star for each in found))


def _parse_range(text: str, allowed: _FieldRange) -> _Field:
    """One range: `*`, `5`, `1-5`, each with or without `/STEP`. Raises ScheduleError."""
    span, *steps = text.split("/")
    ends = span.split("-")
    is_star = ends[0] in ("*", "?")
    if is_star:
        first, last = allowed.low, allowed.high
    else:
        first = last = _number_or_name(ends[0], allowed)
        if len(ends) > 2:
            raise ScheduleError(f"too many hyphens: {text}")
        if len(ends) == 2:
            last = _number_or_name(ends[1], allowed)
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text}")
    step = _number(steps[0]) if steps else 1
    if steps and len(ends) == 1:
        last = allowed.high
    if first < allowed.low:
        raise ScheduleError(f"beginning of range ({first}) below minimum ({allowed.low}): {text}")
    if last > allowed.high:
        raise ScheduleError(f"end of range ({last}) above maximum ({allowed.high}): {text}")
    if first > last:
        raise ScheduleError(f"beginning of range ({first}) beyond end of range ({last}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")
    return _Field(frozenset(range(first, last + 1, step)), is_star and step == 1)


def _number_or_name(text: str, allowed: _FieldRange) -> int:
    if text.lower() in allowed.names:
        return allowed.names.index(text.lower()) + allowed.low
    return _number(text)


def _number(text: str) -> int:
    try:
        found = atoi(text)
    except NumError as error:
        raise ScheduleError(f"failed to parse int from {text}: {error}") from None
    if found < 0:
        raise ScheduleError(f"negative number ({found}) not allowed: {text}")
    return found
