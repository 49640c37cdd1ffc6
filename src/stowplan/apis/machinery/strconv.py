"""Whole numbers out of text, as Go's package strconv reads them, with its words for what is wrong.

Python refuses to read more than 4300 digits, with an error of its own, and reads digits and spaces
that Go does not know. So nothing in this package calls `int` on a text but these functions.

Source: Go 1.26, strconv/atoi.go.
"""

from __future__ import annotations

import re

_SIGNED = re.compile(r"([+-]?)([0-9]++)")
_UNSIGNED = re.compile(r"[0-9]++")
_DIGITS_MAX = 20
"""More digits than the largest uint64 has are out of range, whatever they are."""
INT64 = 64


class NumError(ValueError):
    """A text that is no number, or not of the size; its text is Go's."""


def parse_int(text: str, bits: int = INT64, function: str = "ParseInt") -> int:
    """The signed whole number of so many bits. Raises NumError.

    function: what the error names; Atoi where the original calls that.
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
    """An int64, whose error names Atoi. Raises NumError."""
    return parse_int(text, INT64, "Atoi")


def parse_uint(text: str, bits: int = INT64) -> int:
    """The unsigned whole number of so many bits. Raises NumError."""
    if _UNSIGNED.fullmatch(text) is None:
        raise NumError(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    digits = text.lstrip("0") or "0"
    if len(digits) <= _DIGITS_MAX:
        value = int(digits)
        if value < 1 << bits:
            return value
    raise NumError(f'strconv.ParseUint: parsing "{text}": value out of range')


def saturated_int(text: str) -> int:
    """The int64, or the nearest one of a number beyond: what Go returns beside the error.

    Raises NumError for what is no number.
    """
    try:
        return atoi(text)
    except NumError:
        if _SIGNED.fullmatch(text) is None:
            raise
    return -(1 << 63) if text.startswith("-") else (1 << 63) - 1


def int_or_none(text: str, bits: int = INT64) -> int | None:
    """The signed number of a text; None for another text, and for a number of more bits."""
    try:
        return parse_int(text, bits)
    except NumError:
        return None


def uint_or_none(text: str, bits: int = INT64) -> int | None:
    """As `int_or_none`, of digits alone: a number that is not negative."""
    return int_or_none(text, bits) if text[:1].isdigit() else None
