"""Resource quantities: parsing, rounding and formatting of `500m`, `1.5Gi` or `1e3`.

A quantity is a decimal number with a suffix. Digits down to a billionth are exact; smaller amounts
are rounded up to one billionth. Amounts are rounded again only when the scheduler uses them, up to
whole units or (CPU) to thousandths. Amounts must therefore be added before they are rounded: two
containers of 100u CPU need 1m together, not 2m.

Negative amounts and amounts beyond int64 occur in objects that were not validated. The original has
two representations (an int64 with a power of ten, or a big decimal), and for such amounts its
result depends on the representation. `Exact` reproduces it; all other amounts are integers of a
billionth (`nanos`).

Source: apimachinery v1.36, pkg/api/resource: quantity.go, amount.go, scale_int.go, suffix.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

Quantity: TypeAlias = str | int | float
"""A quantity in JSON: a string, or a number whose literal is parsed like one."""

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
NANOS_PER_UNIT = 10**9
NANOS_PER_MILLI = 10**6

_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[+-]?[0-9]*+)")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
# Suffixes of most amounts, with which numbers of so many digits are below int64.
_SUFFIX_LETTERS, _DIGITS_MAX = "numkKMGi", 9
_NANOS_PER = {
    **{name: int(10 ** (9 + power)) for name, power in _DECIMAL.items() if power <= 9},
    **{name: 10**9 << power for name, power in _BINARY.items() if power <= 30},
}
# Whitespace that the original strips and that may be unescaped in a JSON string.
_BLANKS = " \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
# Differs: the original has no limit of length and exponent and would compute for hours.
_LENGTH_MAX = 4000
_EXPONENT_MAX = 10_000
# Distinct quantities are few (sizes of machines and of workloads), but memory differs per node.
_CACHE_SIZE = 1 << 16


class QuantityError(ValueError):
    """A text that is not a quantity; `text` is the value."""

    def __init__(self, text: object) -> None:
        """text: the value."""
        excerpt = repr(text)
        if len(excerpt) > 60:
            excerpt = excerpt[:57] + "..."
        super().__init__(
            f"quantity {excerpt}: expected a decimal number, with or without one of the suffixes "
            "n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent such as e3"
        )
        self.text = text


class OutOfRangeError(ArithmeticError):
    """A negative amount or one beyond int64, for which `Exact` must be used."""


@dataclass(frozen=True, slots=True)
class Exact:
    """An amount as in the original: `unscaled * 10**exponent`, in one of two representations.

    Amounts can be added and compared; the representation of a sum is part of the result.

    is_decimal: True for the big decimal, False for the int64 with a power of ten.
    """

    unscaled: int
    exponent: int
    is_decimal: bool

    def __add__(self, other: Exact) -> Exact:
        # The sum keeps the int64 representation as long as it fits.
        if self.is_decimal or other.is_decimal:
            return self._decimal_sum(other)
        if other.unscaled == 0:
            return self
        if self.unscaled == 0:
            return other
        total = self._decimal_sum(other)
        parts = (self._at(total.exponent), other._at(total.exponent), total.unscaled)
        fits = all(INT64_MIN <= part <= INT64_MAX for part in parts)
        return replace(total, is_decimal=False) if fits else total

    def __gt__(self, other: Exact) -> bool:
        exponent = min(self.exponent, other.exponent)
        return self._at(exponent) > other._at(exponent)

    def value(self) -> int:
        """Whole units, int64."""
        return self._scaled(0)

    def milli_value(self) -> int:
        """Thousandths, int64."""
        return self._scaled(3)

    def _at(self, exponent: int) -> int:
        """The unscaled number at `exponent`, at most the amount's own."""
        return self.unscaled * _ten_to(self.exponent - exponent)

    def _decimal_sum(self, other: Exact) -> Exact:
        exponent = min(self.exponent, other.exponent)
        return Exact(self._at(exponent) + other._at(exponent), exponent, True)

    def _scaled(self, digits: int) -> int:
        """The amount times `10**digits` as int64, with the rounding and overflow of its
        representation."""
        shift = self.exponent + digits
        if self.is_decimal:
            return _scale_decimal(self.unscaled, shift)
        if shift < 0:
            size = -(-abs(self.unscaled) // _ten_to(-shift))
            return size if self.unscaled > 0 else -size
        scaled = self.unscaled * _ten_to(shift)
        return scaled if INT64_MIN <= scaled <= INT64_MAX else 0


def _scale_decimal(unscaled: int, shift: int) -> int:
    """`unscaled * 10**shift` in the big decimal representation.

    Divisions round up, except that a negative number that fits int64 is first truncated toward
    zero; a number that does not fit loses its upper bits.
    """
    if shift >= 0:
        # A power of ten beyond int64 is converted from float to the lowest int64.
        return _wrap(_low_bits(unscaled) * (_ten_to(shift) if shift <= 18 else INT64_MIN))
    divisor = _ten_to(-shift)
    if unscaled >= INT64_MAX or shift <= -19:
        return _wrap(_low_bits(unscaled // divisor) + (unscaled % divisor != 0))
    number = _low_bits(unscaled)
    quotient = abs(number) // divisor
    return (quotient if number >= 0 else -quotient) + (number % divisor != 0)


def _ten_to(n: int) -> int:
    """`10**n` for n >= 0."""
    power: int = 10**n
    return power


def _low_bits(number: int) -> int:
    """The lower 64 bits of the magnitude as int64, with the sign."""
    size = _wrap(abs(number))
    return _wrap(-size) if number < 0 else size


def _wrap(number: int) -> int:
    """`number` modulo 2**64, as int64."""
    return (number + 2**63) % 2**64 - 2**63


def exact(q: Quantity) -> Exact:
    """`q` in the original's representation; raises QuantityError."""
    # Differs: of a JSON number with a fraction only the nearest double is known. Its shortest text
    # is parsed, which equals the literal up to 15 digits.
    text = q.strip(_BLANKS) if isinstance(q, str) else str(q)
    form = _FORM.fullmatch(text) if 0 < len(text) <= _LENGTH_MAX else None
    if form is None:
        raise QuantityError(q)
    sign, digits, fraction, suffix = form.group(1, 2, 3, 4)
    fraction = fraction or ""
    whole = digits.lstrip("0") or "0"
    n_digits = len(whole) + len(fraction)
    doublings = _BINARY.get(suffix, 0)
    power = 0 if doublings else _power_of_ten(q, suffix)
    # The int64 representation takes what certainly fits: 18 decimal digits, or 14 less those of the
    # suffix.
    if doublings:
        fits_int64 = not fraction and n_digits + doublings * 3 // 10 <= 14
    else:
        fits_int64 = n_digits <= 18 and power - len(fraction) >= -9
    negative = sign == "-"
    if fits_int64:
        number = int(whole + fraction) << doublings
        return Exact(-number if negative else number, power - len(fraction), False)
    if not digits and not fraction:
        raise QuantityError(q)
    number = int(whole + fraction) << doublings
    return _capped(number, power - len(fraction), negative, bool(doublings))


def _power_of_ten(got: Quantity, suffix: str) -> int:
    """The exponent of a decimal suffix; raises QuantityError."""
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None or not INT64_MIN <= int(exponent[1]) <= INT64_MAX:
        raise QuantityError(got)
    # The original keeps 32 bits.
    power = (int(exponent[1]) + 2**31) % 2**32 - 2**31
    return max(-_EXPONENT_MAX, min(power, _EXPONENT_MAX))


def _capped(number: int, exponent: int, negative: bool, binary: bool) -> Exact:
    """The big decimal representation: rounded up to a billionth, binary amounts limited to
    int64."""
    if number:
        if exponent >= -9:
            number *= _ten_to(exponent + 9)
        else:
            number = -(-number // _ten_to(-9 - exponent))
        exponent = -9
    if binary and number > INT64_MAX * 10**9:
        number, exponent = INT64_MAX, 0
    return Exact(-number if negative else number, exponent, True)


@lru_cache(maxsize=_CACHE_SIZE, typed=True)
def value(q: Quantity) -> int:
    """`q` in whole units, rounded up; raises QuantityError.

    Beyond int64 the result is the original's: 0, the highest int64 or a wrapped number. Negative
    amounts are rounded away from zero, or up if they were parsed as decimals.
    """
    return exact(q).value()


@lru_cache(maxsize=_CACHE_SIZE, typed=True)
def milli_value(q: Quantity) -> int:
    """`q` in thousandths, rounded up; otherwise the same as `value`."""
    return exact(q).milli_value()


@lru_cache(maxsize=_CACHE_SIZE)
def nanos(q: Quantity) -> int:
    """`q` in billionths, exact: may be added before rounding.

    Raises QuantityError, and OutOfRangeError for negative amounts and amounts beyond int64. The
    cache does not distinguish True from 1: decoding must refuse booleans.
    """
    if isinstance(q, str):
        digits = q.rstrip(_SUFFIX_LETTERS)
        scale = _NANOS_PER.get(q[len(digits) :])
        if scale and len(digits) <= _DIGITS_MAX and digits.isascii() and digits.isdigit():
            return int(digits) * scale
    held = exact(q)
    if held.unscaled < 0 or held > Exact(INT64_MAX, 0, True):
        raise OutOfRangeError(q)
    return held.unscaled * _ten_to(held.exponent + 9) if held.unscaled else 0


def amount(resource: str, q: Quantity) -> int:
    """`q` in the base unit of `resource`: milli-CPU for `cpu`, whole units (bytes, counts) else."""
    return milli_value(q) if resource == "cpu" else value(q)


_SIZED = ("memory", "ephemeral-storage", "storage")


def format_quantity(resource: str, amount: int) -> str:
    """`amount` in base units as a quantity; parsing it returns the same amount if not negative.

    CPU is formatted in CPUs or milli-CPU, sizes with the suffix of the shortest text, counts plain.
    """
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource not in _SIZED and not resource.startswith("hugepages-"):
        return str(amount)
    texts = [str(amount)]
    if amount % 1024 == 0:
        texts += [f"{amount >> n}{suffix}" for suffix, n in _BINARY.items() if amount % 2**n == 0]
    if amount % 1000 == 0:
        texts += [
            f"{amount // 10**n}{suffix}"
            for suffix, n in _DECIMAL.items()
            if n > 0 and amount % 10**n == 0
        ]
    return min(texts, key=len) if amount else "0"
