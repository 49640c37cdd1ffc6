"""Numbers in labels and annotations that users write, as KAI-Scheduler reads them.

Other texts than Go's parser takes are no numbers, whatever Python's would make of them: digits of
other scripts, blanks, underscores.
"""

from __future__ import annotations

import re

_DIGITS_MAX = 18
"""All numbers of so many digits are int64."""
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")

DEVICES_MAX = 1024
"""More cards than any node has: where names of cards are made, no more are."""


def unsigned_number(text: str | None) -> int | None:
    """A number of up to 18 digits, without a sign; None for other texts."""
    if not text or not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        return None
    return int(text)


def decimal(text: str | None) -> float:
    """A finite decimal number; 0 for other texts."""
    if not text or _DECIMAL.fullmatch(text) is None:
        return 0.0
    value = float(text)
    return value if abs(value) < float("inf") else 0.0
