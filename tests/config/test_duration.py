from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.objects.encoding.duration import parse, render

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", 0 * SECOND),
        ("0s", 0 * SECOND),
        ("5s", 5 * SECOND),
        ("+5s", 5 * SECOND),
        ("-5s", -5 * SECOND),
        ("-0", 0 * SECOND),
        ("30s", 30 * SECOND),
        ("1478s", 1478 * SECOND),
        ("5.s", 5 * SECOND),
        (".5s", 0.5 * SECOND),
        ("1.0s", SECOND),
        ("1.004s", timedelta(milliseconds=1004)),
        ("0100.00100s", timedelta(seconds=100, milliseconds=1)),
        ("11us", timedelta(microseconds=11)),
        ("12µs", timedelta(microseconds=12)),
        ("12μs", timedelta(microseconds=12)),
        ("3000ns", timedelta(microseconds=3)),
        ("13ms", timedelta(milliseconds=13)),
        ("15m", timedelta(minutes=15)),
        ("16h", timedelta(hours=16)),
        ("3h30m", timedelta(hours=3, minutes=30)),
        ("10.5s4m", timedelta(minutes=4, seconds=10.5)),
        ("-2m3.4s", -timedelta(minutes=2, seconds=3.4)),
        ("39h9m14.425s", timedelta(hours=39, minutes=9, seconds=14.425)),
    ],
)
def test_reading(text: str, wanted: timedelta) -> None:
    assert parse(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        *("", "3", "-", "s", ".", "-.", ".s", "+.s", "1d", "5 s", " 5s", "5s ", "1s2", "--5s"),
        *("1e3s", "5S", "1..5s", "1.5.5s", "٣s", "1s" * 60),
    ],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2562048h", "below 293 years"),
        ("1ns", "whole microseconds"),
        ("1.5us", "whole microseconds"),
        ("0.3333333333333333333h", "whole microseconds"),
    ],
)
def test_what_is_out_of_range(text: str, wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        parse(text)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(microseconds=1), "1µs"),
        (timedelta(microseconds=1100), "1.1ms"),
        (timedelta(milliseconds=2), "2ms"),
        (timedelta(milliseconds=2200), "2.2s"),
        (timedelta(seconds=10), "10s"),
        (timedelta(seconds=1, microseconds=1), "1.000001s"),
        (timedelta(minutes=3, seconds=3.3), "3m3.3s"),
        (timedelta(minutes=4), "4m0s"),
        (timedelta(minutes=4, milliseconds=1), "4m0.001s"),
        (timedelta(hours=5, minutes=6, seconds=7.001), "5h6m7.001s"),
        (timedelta(hours=5, milliseconds=1), "5h0m0.001s"),
        (timedelta(hours=1), "1h0m0s"),
        (timedelta(hours=100), "100h0m0s"),
        (-timedelta(minutes=1, seconds=1.5), "-1m1.5s"),
    ],
)
def test_printing(duration: timedelta, text: str) -> None:
    assert render(duration) == text


def check_round_trip(print_it: Callable[[timedelta], str]) -> None:
    @given(st.timedeltas(-timedelta(days=100_000), timedelta(days=100_000)))
    def returns(duration: timedelta) -> None:
        assert parse(print_it(duration)) == duration

    returns()


@pytest.mark.hypothesis
def test_what_is_printed_is_read_back() -> None:
    check_round_trip(render)


def test_control_printing_fractions_without_their_zeros() -> None:
    def careless(duration: timedelta) -> str:
        micros = duration // timedelta(microseconds=1)
        return f"{micros // 10**6}.{micros % 10**6}s"

    with pytest.raises(AssertionError):
        check_round_trip(careless)
