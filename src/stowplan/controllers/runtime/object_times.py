"""Moments that objects carry, as numbers; what is absent or unreadable counts as long ago."""

from __future__ import annotations

from stowplan.apis.machinery.timestamps import format_micro_time, format_time, parse_time

__all__ = ["format_micro_time", "format_time", "unix_seconds"]


def unix_seconds(text: str | None) -> float:
    """The Unix time of a stored time; 0.0 of none."""
    if not text:
        return 0.0
    try:
        return parse_time(text)
    except ValueError:
        return 0.0
