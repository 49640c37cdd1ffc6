"""Whole numbers in texts that clients write, as Go reads them: ASCII digits of at most 64 bits.

Python's `int` reads digits of any script, and raises for more than 4,300 of them.
"""

from __future__ import annotations

import re

_WHOLE = re.compile(r"[+-]?0*([0-9]{1,19})")


def int_of(text: str, bits: int = 64) -> int | None:
    """The number of a text; None for another text, and for a number of more bits."""
    if _WHOLE.fullmatch(text) is None:
        return None
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    number = int(sign + (digits.lstrip("0") or "0"))
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def count_of(text: str, bits: int = 64) -> int | None:
    """As `int_of`, of digits alone: a number that is not negative."""
    return int_of(text, bits) if text[:1].isdigit() else None
