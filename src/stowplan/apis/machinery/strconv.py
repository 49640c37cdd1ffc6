"""Integers parsed as Go's package strconv does, with its errors.

Python refuses to parse more than 4300 digits and accepts digits and spaces that Go does not. So
nothing else in apis and apiserver calls `int` on a string.

Source: Go 1.26, strconv/atoi.go.
"""

from __future__ import annotations

import re

_SIGNED = re.compile(r"([+-]?)([0-9]++)")
_UNSIGNED = re.compile(r"[0-9]++")
_DIGITS_MAX = 20
"""Numbers with more digits than the largest uint64 are out of range."""
INT64 = 64


class NumError(ValueError):
    """Invalid syntax or value out of range; the text is Go's."""


def parse_int(text: str, bits: int = INT64, function: str = "ParseInt") -> int:
    """A signed integer of `bits` bits. Raises NumError.

    function: the name in the error; Atoi where the original calls it.
    """
    form = _SIGNED.fullmatch(text)
    if form is None:
        raise NumError(f'strconv.{function}: parsing "{text}": invalid syntax')
    limit = 1 << (bits - 1)
    digits = form[2].lstrip("0") or "0"
    if len(digits) <= _DIGITS_MAX:
        value = int(form[1] + digits)
        if -limit <= value < limit:
            return value
    raise NumError(f'strconv.{function}: parsing "{text}": value out of range')


def atoi(text: str) -> int:
    """An int64; the error names Atoi. Raises NumError."""
    return parse_int(text, INT64, "Atoi")


def parse_uint(text: str, bits: int = INT64) -> int:
    """An unsigned integer of `bits` bits. Raises NumError."""
    if _UNSIGNED.fullmatch(text) is None:
        raise NumError(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    digits = text.lstrip("0") or "0"
    if len(digits) <= _DIGITS_MAX:
        value = int(digits)
        if value < 1 << bits:
            return value
    raise NumError(f'strconv.ParseUint: parsing "{text}": value out of range')


def saturated_int(text: str) -> int:
    """The int64, or the nearest int64 for a number out of range, as Go returns with the error.

    Raises NumError for invalid syntax.
    """
    try:
        return atoi(text)
    except NumError:
        if _SIGNED.fullmatch(text) is None:
            raise
    return -(1 << 63) if text.startswith("-") else (1 << 63) - 1


def int_or_none(text: str, bits: int = INT64) -> int | None:
    """The signed integer of a text; None for invalid syntax and numbers out of range."""
    try:
        return parse_int(text, bits)
    except NumError:
        return None


def uint_or_none(text: str, bits: int = INT64) -> int | None:
    """As `int_or_none`, of digits only."""
    return int_or_none(text, bits) if text[:1].isdigit() else None
