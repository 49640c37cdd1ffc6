"""Durations as users write them on the command line: 90s, 15m, 12h or 30d."""

from __future__ import annotations

import math
import re

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)")
_DURATION_S_MAX = 10**10
DURATION_WANTED = "a duration such as 90s, 15m, 12h or 30d"


def parse_duration(text: str) -> float:
    """Seconds of a text like 90s, 15m, 12h or 30d; without a unit, seconds. Raises ValueError."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else math.inf
    if seconds > _DURATION_S_MAX:
        raise ValueError(f"must be {DURATION_WANTED}")
    return seconds


def parse_churn(text: str) -> tuple[float, float]:
    """Mean seconds for which nodes are present and absent, of a text UP/DOWN. Raises ValueError."""
    up, slash, down = text.partition("/")
    try:
        churn = parse_duration(up), parse_duration(down)
    except ValueError:
        churn = 0.0, 0.0
    if not slash or not all(churn):
        raise ValueError(f"must be UP/DOWN, each {DURATION_WANTED}")
    return churn
