"""The canonical form of quantities, as the API server returns them.

A text is kept if it is canonical by the original's heuristic (an integer
whose exponent is a multiple of three and which does not end in three zeros); so `+1` and `01`
stay. Everything else is formatted: the fewest digits with the largest suffix that fits.

Source: apimachinery v0.36, pkg/api/resource: quantity.go, amount.go, suffix.go.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

from stowplan.apis.machinery.strconv import atoi
from stowplan.apis.machinery.text_cache import TEXT_MAX, cache_short_texts
from stowplan.objects.quantity import Exact, Quantity, QuantityError, exact

ERR_FORMAT_WRONG = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
ERR_NUMERIC = "unable to parse numeric part of quantity"
ERR_SUFFIX = "unable to parse quantity's suffix"

_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY = {10: "Ki", 20: "Mi", 30: "Gi", 40: "Ti", 50: "Pi", 60: "Ei"}
_FORM = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[+-]?[0-9]*)")
_CACHE_SIZE = 1 << 14
_BITS_WRITTEN_MAX = 14_000


class InvalidQuantity(ValueError):
    """The text is that of the original."""


def canonical_quantity(got: Quantity, rounded: bool = False) -> str:
    """`got` in canonical form. rounded: up to thousandths first, as in resource lists.

    Raises InvalidQuantity.
    """
    if isinstance(got, str) and len(got) > TEXT_MAX:
        return _canonical(got, rounded)
    return _cached_canonical(got, rounded)


def _canonical(got: Quantity, rounded: bool) -> str:
    text = got.strip() if isinstance(got, str) else str(got)
    try:
        held = exact(text)
    except QuantityError:
        raise InvalidQuantity(_parse_error(text)) from None
    _, digits, fraction, suffix = _parts(text)
    kept = _keeps_text(text, held, digits, fraction, suffix)
    if rounded and (held.is_decimal or held.exponent < -3):
        held, kept = _round_up_to_milli(held), False
    return text if kept else _format_exact(held, suffix)


_cached_canonical = lru_cache(maxsize=_CACHE_SIZE, typed=True)(_canonical)


def _parts(text: str) -> tuple[str, str, str, str]:
    form = _FORM.fullmatch(text)
    assert form is not None, text
    return form[1], form[2], form[3] or "", form[4]


def _parse_error(text: str) -> str:
    form = _FORM.fullmatch(text) if text else None
    if form is None:
        return ERR_FORMAT_WRONG
    suffix = form[4]
    known = suffix in _DECIMAL.values() or suffix in _BINARY.values()
    if not known and not re.fullmatch(r"[eE][+-]?[0-9]+", suffix):
        return ERR_SUFFIX
    return ERR_NUMERIC


def _keeps_text(text: str, held: Exact, digits: str, fraction: str, suffix: str) -> bool:
    """True if the original keeps the text instead of formatting the amount."""
    if text == "0":
        return True
    if held.is_decimal:
        return False
    shifted = (digits.lstrip("0") + fraction) or "0"
    if suffix.endswith("i"):
        # A thousand is a multiple of eight.
        return bool(atoi(shifted[-3:]) & 7)
    return held.exponent % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"


def _round_up_to_milli(held: Exact) -> Exact:
    if held.exponent >= -3:
        return held
    divisor: int = 10 ** (-3 - held.exponent)
    size = -(-abs(held.unscaled) // divisor)
    return Exact(size if held.unscaled >= 0 else -size, -3, held.is_decimal)


def _format_exact(held: Exact, suffix: str) -> str:
    if held.unscaled == 0:
        return "0"
    if suffix.endswith("i") and not _too_small_for_binary(held):
        return _format_binary(held)
    return _format_decimal(held, scientific=bool(suffix) and suffix[0] in "eE" and suffix != "E")


def _too_small_for_binary(held: Exact) -> bool:
    """Between -1024 and 1024, or with a fraction: written with decimal suffixes."""
    if held.exponent >= 0:
        return bool(abs(held.unscaled) * 10**held.exponent < 1024)
    scale: int = 10**-held.exponent
    return abs(held.unscaled) < 1024 * scale or held.unscaled % scale != 0


def _format_binary(held: Exact) -> str:
    number = (
        held.unscaled * 10**held.exponent
        if held.exponent >= 0
        else held.unscaled // 10**-held.exponent
    )
    doublings = 0
    while number % 1024 == 0 and doublings < 60:
        number //= 1024
        doublings += 10
    return f"{_digits(number)}{_BINARY.get(doublings, '')}"


def _format_decimal(held: Exact, scientific: bool) -> str:
    number, exponent = held.unscaled, held.exponent
    while number % 10 == 0:
        number //= 10
        exponent += 1
    while exponent % 3:
        number *= 10
        exponent -= 1
    digits = _digits(number)
    if not scientific:
        return f"{digits}{_DECIMAL.get(exponent, '')}"
    return f"{digits}e{exponent}" if exponent else digits


def _digits(number: int) -> str:
    """All digits of a number; Python formats at most 4300."""
    return str(number) if number.bit_length() <= _BITS_WRITTEN_MAX else f"{Decimal(number):f}"


@cache_short_texts(_CACHE_SIZE)
def has_fraction(text: str) -> bool:
    """True if the server rejects a size as a fraction of a byte.

    It compares thousandths in an int64, so some amounts that overflow it count as fractional.
    """
    held = exact(text)
    return held.milli_value() % 1000 != 0


@cache_short_texts(_CACHE_SIZE)
def amount(text: str) -> Exact:
    """The value of a canonical quantity."""
    return exact(text)


def compare(one: str, other: str) -> int:
    """-1, 0 or 1 as `one` is less than, equal to or more than `other`."""
    left, right = amount(one), amount(other)
    return (left > right) - (right > left)


def is_zero(text: str) -> bool:
    """True for zero."""
    return amount(text).unscaled == 0


def is_negative(text: str) -> bool:
    """True below zero."""
    return amount(text).unscaled < 0


def suffix_of(text: str) -> str:
    """The suffix of a quantity: `Mi`, `m`, `e3`, or nothing."""
    return _parts(text)[3]


def format_quantity(held: Exact, suffix: str = "") -> str:
    """A sum as the server formats it. suffix: of a quantity whose kind of suffixes it gets."""
    return _format_exact(held, suffix)
