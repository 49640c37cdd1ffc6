"""Times of objects as numbers; an absent or invalid one counts as 0."""

from __future__ import annotations

from stowplan.apis.machinery.timestamps import format_micro_time, format_time, parse_time

__all__ = ["format_micro_time", "format_time", "unix_seconds"]


def unix_seconds(text: str | None) -> float:
    """Unix time of a stored time; 0.0 for none."""
    if not text:
        return 0.0
    try:
        return parse_time(text)
    except ValueError:
        return 0.0
