"""Quantities against exact fractions, written without the module's own arithmetic."""

import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from stowplan.objects.quantity import (
    INT64_MAX,
    QuantityError,
    amount,
    exact,
    format_quantity,
    milli_value,
    nanos,
    value,
)
from tests.property.wrong import caught_at_once

POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
DOUBLINGS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

whole_numbers = st.integers(0, 10**6).map(str) | st.integers(0, 10**20).map(str)
numbers = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "+", "0", "00"]),
        whole_numbers,
        st.just("")
        | st.builds("".join, st.tuples(st.just("."), st.text("0123456789", max_size=12))),
    ),
)
suffixes = (
    st.sampled_from([*POWERS, *DOUBLINGS])
    | st.builds("e{}".format, st.integers(-15, 15))
    | st.builds("E{:+d}".format, st.integers(-15, 15))
)
texts = st.builds("".join, st.tuples(numbers, suffixes))


def fraction(text: str) -> Fraction:
    """The number that a well-formed text without a minus sign stands for."""
    found = re.match(r"\+?([0-9.]+)(.*)", text)
    assert found
    suffix = found[2]
    if suffix in DOUBLINGS:
        factor = Fraction(2 ** DOUBLINGS[suffix])
    elif suffix in POWERS:
        factor = Fraction(10) ** POWERS[suffix]
    else:
        factor = Fraction(10) ** int(suffix[1:])
    return Fraction(found[1].removesuffix(".")) * factor


in_range = texts.filter(lambda text: math.ceil(fraction(text) * 1000) <= INT64_MAX)


def check_reading(units: Callable[[str], int], thousandths: Callable[[str], int]) -> None:
    @given(in_range)
    def agrees(text: str) -> None:
        number = fraction(text)
        assert units(text) == math.ceil(number)
        assert thousandths(text) == math.ceil(number * 1000)

    agrees()


def test_reading_rounds_the_exact_number_up() -> None:
    check_reading(value, milli_value)


def test_control_reading_through_floats() -> None:
    def through_float(text: str) -> int:
        return math.ceil(float(fraction(text)) * 1000)

    with caught_at_once():
        check_reading(value, through_float)


def test_control_rounding_to_the_nearest() -> None:
    def nearest(text: str) -> int:
        return round(fraction(text))

    with caught_at_once():
        check_reading(nearest, milli_value)


@given(st.text("0123456789.+-eEinumkKMGTP ", max_size=8))
def test_what_is_not_refused_is_read_whole(text: str) -> None:
    """Any text of the right letters is a quantity or is refused; nothing else can happen."""
    try:
        number = exact(text)
    except QuantityError:
        return
    blank_free = text.strip(" ")
    assert re.fullmatch(r"[+-]?[0-9]*\.?[0-9]*([numkMGTPE]?|[KMGTPE]i|[eE][+-]?[0-9]+)", blank_free)
    assert (number.unscaled < 0) <= blank_free.startswith("-")


@given(texts)
def test_a_minus_sign_negates(text: str) -> None:
    positive, negative = exact(text), exact("-" + text.lstrip("+"))
    assert negative.unscaled == -positive.unscaled
    assert (negative.exponent, negative.is_decimal) == (positive.exponent, positive.is_decimal)


small = st.lists(in_range, max_size=4).filter(
    lambda several: sum(map(fraction, several)) * 1000 <= INT64_MAX
)


def check_sums(total_milli: Callable[[Sequence[str]], int]) -> None:
    @given(small)
    def agrees(several: Sequence[str]) -> None:
        # Only what is below a billionth is rounded before the sum.
        parts = [Fraction(math.ceil(fraction(text) * 10**9), 10**9) for text in several]
        assert total_milli(several) == math.ceil(sum(parts) * 1000)

    agrees()


def test_amounts_are_added_before_rounding() -> None:
    check_sums(lambda several: -(-sum(map(nanos, several)) // 10**6))
    check_sums(lambda several: sum(map(exact, several), exact("0")).milli_value())


def test_control_rounding_before_adding() -> None:
    with caught_at_once():
        check_sums(lambda several: sum(map(milli_value, several)))


resources = st.sampled_from(
    ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/x"]
)
amounts = (
    st.integers(0, INT64_MAX)
    | st.builds(lambda n, k: n << k, st.integers(0, 5000), st.sampled_from([10, 20, 30, 40]))
    | st.builds(lambda n, k: n * 10**k, st.integers(0, 5000), st.sampled_from([3, 6, 9, 12]))
)


def check_showing(format_amount: Callable[[str, int], str]) -> None:
    @given(resources, amounts)
    def reads_back(resource: str, n: int) -> None:
        assert amount(resource, format_amount(resource, n)) == n

    reads_back()


def test_a_formatted_amount_reads_back() -> None:
    check_showing(format_quantity)


def test_control_showing_a_rounded_size() -> None:
    def rounded(resource: str, n: int) -> str:
        wide = resource == "memory" and n >= 2**30
        return f"{n / 2**30:.1f}Gi" if wide else format_quantity(resource, n)

    with caught_at_once():
        check_showing(rounded)
