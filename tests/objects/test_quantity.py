"""Quantities: tables of what is read, what is refused, and what comes of amounts beyond int64.

Source: apimachinery v1.36, pkg/api/resource: the rules of ParseQuantity, Value and MilliValue.
"""

import math

import pytest

from stowplan.objects.quantity import (
    INT64_MAX,
    INT64_MIN,
    Exact,
    OutOfRangeError,
    Quantity,
    QuantityError,
    amount,
    exact,
    format_quantity,
    milli_value,
    nanos,
    value,
)


def low(n: int) -> int:
    """What int64 keeps of n."""
    return (n + 2**63) % 2**64 - 2**63


# text, whole units, thousandths
READ = [
    # plain numbers, zeros and dots in odd places
    ("0", 0, 0),
    ("1", 1, 1000),
    ("007", 7, 7000),
    ("+3", 3, 3000),
    ("1.", 1, 1000),
    (".5", 1, 500),
    ("0.1", 1, 100),
    ("00.250", 1, 250),
    (" 2 ", 2, 2000),
    # no digits at all: the original reads them as zero as long as the int64 form holds them
    ("+", 0, 0),
    (".", 0, 0),
    ("m", 0, 0),
    ("Ki", 0, 0),
    ("-e3", 0, 0),
    # decimal suffixes
    ("1n", 1, 1),
    ("100u", 1, 1),
    ("1234567n", 1, 2),
    ("999m", 1, 999),
    ("1500m", 2, 1500),
    ("2k", 2_000, 2_000_000),
    ("0.5k", 500, 500_000),
    ("1.7M", 1_700_000, 1_700_000_000),
    ("64G", 64_000_000_000, 64_000_000_000_000),
    ("1.G", 10**9, 10**12),
    ("5T", 5 * 10**12, 5 * 10**15),
    ("2P", 2 * 10**15, 2 * 10**18),
    ("1E", 10**18, 0),
    # binary suffixes
    ("1Ki", 1024, 1_024_000),
    ("16Mi", 2**24, 2**24 * 1000),
    ("1.5Gi", 3 * 2**29, 3 * 2**29 * 1000),
    ("0.1Ki", 103, 102_400),
    ("100.035Ki", 102_436, 102_435_840),
    ("3Ti", 3 * 2**40, 3 * 2**40 * 1000),
    ("4Pi", 2**52, 2**52 * 1000),
    ("8Pi", 2**53, 2**53 * 1000),
    # exponents, and E as a suffix
    ("1e3", 1000, 1_000_000),
    ("5E-1", 1, 500),
    ("1.3E+6", 1_300_000, 1_300_000_000),
    ("1e-1", 1, 100),
    # below a billionth: up
    ("0.0000000001", 1, 1),
    ("3.001n", 1, 1),
    ("1e-400", 1, 1),
    ("1.0000000001", 2, 1001),
    ("0e-20", 0, 0),
]


@pytest.mark.parametrize(("text", "units", "thousandths"), READ)
def test_read(text: str, units: int, thousandths: int) -> None:
    assert (value(text), milli_value(text)) == (units, thousandths)


NUMBERS = [
    (3, 3, 3000),
    (0, 0, 0),
    (0.5, 1, 500),
    (0.1, 1, 100),
    (1e3, 1000, 1_000_000),
    (1e-7, 1, 1),
    (2.5e16, 25 * 10**15, 0),
    (-2, -2, -2000),
    (-0.0, 0, 0),
]


@pytest.mark.parametrize(("number", "units", "thousandths"), NUMBERS)
def test_json_numbers(number: Quantity, units: int, thousandths: int) -> None:
    assert (value(number), milli_value(number)) == (units, thousandths)


REFUSED = [
    "",
    " ",
    "aoeu",
    "1.1.M",
    "1+1.0M",
    "0.1mi",
    "0.1am",
    ".5i",
    "1i",
    "1ki",
    "1KI",
    "1KB",
    "1K",
    "-3.01e-",
    "1e",
    "1e1.5",
    "1e99999999999999999999",
    "e",
    "Ei",  # no digits, and the int64 form cannot hold the suffix
    "e-20",
    "1 Gi",
    "1,5",
    "1_000",
    "0x10",
    "--1",
    "Infinity",
    "１",
    "1\n",
    "9" * 5000,
    math.nan,
    math.inf,
    True,
    False,
]


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: Quantity) -> None:
    with pytest.raises(QuantityError) as refusal:
        value(text)
    line = str(refusal.value)
    assert repr(text)[:50] in line
    assert "expected a decimal number" in line
    assert "\n" not in line
    assert len(line) < 250


def test_booleans_are_refused_after_the_same_number() -> None:
    assert (value(1), milli_value(0)) == (1, 0)
    with pytest.raises(QuantityError, match="True"):
        value(True)
    with pytest.raises(QuantityError, match="False"):
        milli_value(False)


# Amounts that the API refuses as requests, but that nobody checked in a file of objects.
NEGATIVE = [
    ("-1", -1, -1000),
    ("-", 0, 0),
    ("-1500m", -2, -1500),
    ("-100u", -1, -1),
    # the decimal form truncates and then adds one
    ("-1.5Gi", -3 * 2**29, -3 * 2**29 * 1000),
    ("-0.1Ki", -101, -102_400),
    ("-0.0001Ki", 1, -101),
    # and what is beyond int64 in billionths loses its upper bits before that
    ("-1Pi", -2_882_303_760, -2_882_303_761_516),
]


@pytest.mark.parametrize(("text", "units", "thousandths"), NEGATIVE)
def test_negative(text: str, units: int, thousandths: int) -> None:
    assert (value(text), milli_value(text)) == (units, thousandths)


BEYOND = [
    # the int64 form answers 0
    ("10E", 0, 0),
    ("1e400", 0, 0),
    # binary amounts are held at the highest int64; thousandths of it wrap
    ("3Ei", 3 * 2**60, low(3 * 2**60 * 1000)),
    ("9Ei", INT64_MAX, -1000),
    ("9223372036854775807Ki", INT64_MAX, -1000),
    ("-9Ei", -INT64_MAX, 1000),
    # the decimal form loses its upper bits
    ("9223372036854775807", INT64_MAX, -1000),
    ("9223372036854775808", INT64_MIN, 0),
    ("18446744073709551617", 1, 1000),
    ("18446744073709551616.5", 1, 500),
    # an exponent keeps 32 bits
    ("7e4294967296", 7, 7000),
    ("7e4294967297", 70, 70_000),
]


@pytest.mark.parametrize(("text", "units", "thousandths"), BEYOND)
def test_beyond_int64(text: str, units: int, thousandths: int) -> None:
    assert (value(text), milli_value(text)) == (units, thousandths)


SUMS = [
    ("100u", "100u", 1, 1),
    ("0.5", "500m", 1, 1000),
    ("1.5Gi", "0.5Gi", 2**31, 2**31 * 1000),
    # two of the int64 form stay in it, and it answers 0 beyond int64
    ("5E", "5E", 0, 0),
    ("5E", "0", 5 * 10**18, 0),
    ("0m", "10E", 0, 0),
    # what overflows the int64 form becomes a decimal, and wraps
    ("9E", "999999999999999999", low(10**19 - 1), low((10**19 - 1) * 1000)),
    # a decimal makes the sum a decimal
    ("5E", "5000000000000000001m", 5005 * 10**15 + 1, low(5005 * 10**18 + 1)),
    ("-1500m", "0.0000000001", 0, -1498),
    ("-1.5", "0e-20", -1, -23),
    ("1e60", "1e40", INT64_MIN, INT64_MIN),
]


@pytest.mark.parametrize(("a", "b", "units", "thousandths"), SUMS)
def test_sums(a: str, b: str, units: int, thousandths: int) -> None:
    for total in (exact(a) + exact(b), exact(b) + exact(a)):
        assert total.value() == units
        assert total.milli_value() == thousandths


def test_order_does_not_depend_on_the_form() -> None:
    assert exact("1.5Gi") > exact("1Gi")
    assert exact("10E") > exact("9Ei")
    assert exact("2") > exact("1999m")
    assert not exact("1") > exact("1000m")
    assert not exact("-1") > exact("0e-20")


def test_nanos_is_for_ordinary_amounts_only() -> None:
    assert nanos("250m") == 250_000_000
    assert repr(nanos("0e-20")) == repr(nanos("0e9999")) == "0"
    assert nanos("7Ei") == 7 * 2**60 * 10**9
    for text in ("-1n", "10E", "9223372036854775808", "1e9999"):
        with pytest.raises(OutOfRangeError):
            nanos(text)


def test_amount_is_milli_for_cpu_only() -> None:
    assert amount("cpu", "1.5") == 1500
    assert amount("memory", "1.5") == 2
    assert amount("nvidia.com/gpu", 4) == 4


def test_exact_remembers_its_form() -> None:
    assert exact("1.5") == Exact(15, -1, is_decimal=False)
    assert exact("1Gi") == Exact(2**30, 0, is_decimal=False)
    assert exact("1.5Gi") == Exact(3 * 2**29 * 10**9, -9, is_decimal=True)
    assert not exact("10Ti").is_decimal
    assert exact("100Ti").is_decimal
    assert not exact("100000000000000000").is_decimal
    assert exact("1000000000000000000").is_decimal


FORMATTED = [
    ("cpu", 0, "0"),
    ("cpu", 2000, "2"),
    ("cpu", 1500, "1500m"),
    ("cpu", -1, "-1m"),
    ("memory", 0, "0"),
    ("memory", 2**32, "4Gi"),
    ("memory", 3 * 2**29, "1536Mi"),
    ("memory", 1000, "1k"),
    ("memory", 64_000_000_000, "64G"),
    ("memory", 64_000_000_001, "64000000001"),
    ("memory", -(2**20), "-1Mi"),
    ("ephemeral-storage", 10 * 2**30, "10Gi"),
    ("hugepages-2Mi", 2**21, "2Mi"),
    ("nvidia.com/gpu", 1024, "1024"),
    ("pods", 110, "110"),
]


@pytest.mark.parametrize(("resource", "n", "text"), FORMATTED)
def test_format_quantity(resource: str, n: int, text: str) -> None:
    assert format_quantity(resource, n) == text
