"""Schedules of CronJobs. Expected values: github.com/robfig/cron v3, spec_test.go and
parser_test.go, and crontab(5)."""

from __future__ import annotations

from datetime import datetime

import pytest

from stowplan.apis.batch.cron_schedule import (
    ScheduleError,
    format_in_zone,
    format_rfc1123,
    load_time_zone,
    parse_schedule,
)


def unix(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


@pytest.mark.parametrize(
    ("schedule", "since", "expected"),
    [
        ("0/15 * * * *", "2012-07-09T14:45:00", "2012-07-09T15:00:00"),
        ("0/15 * * * *", "2012-07-09T14:59:59", "2012-07-09T15:00:00"),
        ("*/15 * * * *", "2012-07-09T14:46:10", "2012-07-09T15:00:00"),
        ("20-35/15 * * * *", "2012-07-09T15:45:00", "2012-07-09T16:20:00"),
        ("*/15 * * * *", "2012-12-31T23:45:05", "2013-01-01T00:00:00"),
        ("0 0 9 Jul *", "2012-07-09T00:00:00", "2013-07-09T00:00:00"),
        ("0 0 9 Apr-Oct ?", "2012-07-09T23:35:51", "2012-08-09T00:00:00"),
        ("0 0 */5 Apr,Aug,Oct Mon", "2012-07-09T23:35:51", "2012-08-01T00:00:00"),
        ("0 0 */5 Oct Mon", "2012-07-09T23:35:51", "2012-10-01T00:00:00"),
        ("0 0 1,15 * Sun", "2012-07-14T12:00:00", "2012-07-15T00:00:00"),
        ("0 0 1,15 * Sun", "2012-07-15T12:00:00", "2012-07-22T00:00:00"),
        ("0 0 * * Mon", "2012-07-15T00:00:00", "2012-07-16T00:00:00"),
        ("0 0 */10 * Sun", "2012-07-14T00:00:00", "2012-07-15T00:00:00"),
        ("0 0 29 Feb ?", "2012-07-09T23:35:00", "2016-02-29T00:00:00"),
        ("0 0 13 * 5", "2026-01-01T00:00:00", "2026-01-02T00:00:00"),
        ("@hourly", "2026-01-01T10:00:00", "2026-01-01T11:00:00"),
        ("@weekly", "2026-01-01T10:00:00", "2026-01-04T00:00:00"),
        ("@yearly", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("@every 1h30m", "2026-01-01T00:00:05", "2026-01-01T01:30:05"),
        ("@every 15ms", "2026-01-01T00:00:00", "2026-01-01T00:00:01"),
        ("@every 1ns", "2026-01-01T00:00:00", "2026-01-01T00:00:01"),
        ("@every -5s", "2026-01-01T00:00:00", "2026-01-01T00:00:01"),
        ("@every 2.000000001s", "2026-01-01T00:00:00", "2026-01-01T00:00:02"),
    ],
)
def test_next_time(schedule: str, since: str, expected: str) -> None:
    found = parse_schedule(schedule).next_after(unix(f"{since}+00:00"))
    assert found == unix(f"{expected}+00:00")


@pytest.mark.parametrize(
    ("zone", "schedule", "since", "expected"),
    [
        # 2012-03-11: New York skips 02:00 to 03:00; 2012-11-04: 01:00 to 02:00 occurs twice.
        (
            "America/New_York",
            "30 2 11 Mar ?",
            "2012-03-11T00:00:00-05:00",
            "2013-03-11T02:30-04:00",
        ),
        ("America/New_York", "0 * * * ?", "2012-03-11T01:00:00-05:00", "2012-03-11T03:00-04:00"),
        ("America/New_York", "0 * * * ?", "2012-11-04T01:00:00-04:00", "2012-11-04T01:00-05:00"),
        ("America/New_York", "0 0 * * ?", "2012-11-04T00:00:00-04:00", "2012-11-05T00:00-05:00"),
        ("Asia/Kolkata", "0 9 * * *", "2026-01-01T09:00:00+05:30", "2026-01-02T09:00+05:30"),
        # 2018-11-04: Sao Paulo skips midnight.
        ("America/Sao_Paulo", "0 9 4 11 *", "2018-11-03T23:00:00-03:00", "2018-11-04T09:00-02:00"),
    ],
)
def test_next_time_in_a_zone(zone: str, schedule: str, since: str, expected: str) -> None:
    moment = unix(since)
    assert parse_schedule(schedule, zone).next_after(moment) == unix(expected)
    assert parse_schedule(f"TZ={zone} {schedule}").next_after(moment) == unix(expected)


@pytest.mark.parametrize("schedule", ["59 23 31 2 *", ", * * * *"])
def test_a_schedule_that_is_never_due(schedule: str) -> None:
    assert parse_schedule(schedule).next_after(0) is None


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("@evry", "unrecognized descriptor: @evry"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("*/1/2 * * * *", "too many slashes: */1/2"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        (
            "a * * * *",
            'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax',
        ),
        (
            "@every 5",
            'failed to parse duration @every 5: time: missing unit in duration "5"',
        ),
        (
            "@every 1d",
            'failed to parse duration @every 1d: time: unknown unit "d" in duration "1d"',
        ),
        (
            "@every 2562048h",
            'failed to parse duration @every 2562048h: time: invalid duration "2562048h"',
        ),
        ("TZ=Mars/One * * * * *", "provided bad location Mars/One: unknown time zone Mars/One"),
    ],
)
def test_errors(schedule: str, text: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        parse_schedule(schedule)
    assert str(refused.value) == text


def test_a_folder_of_zones_is_no_zone() -> None:
    with pytest.raises(ScheduleError, match="unknown time zone Europe"):
        load_time_zone("Europe")


def test_texts_of_times() -> None:
    moment = unix("2026-07-01T10:00:00+00:00")
    assert format_in_zone(moment, None) == "2026-07-01T10:00:00Z"
    assert format_in_zone(moment, load_time_zone("Europe/Zurich")) == "2026-07-01T12:00:00+02:00"
    assert format_rfc1123(moment) == "Wed, 01 Jul 2026 10:00:00 +0000"
