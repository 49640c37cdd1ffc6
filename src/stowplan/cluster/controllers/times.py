"""Moments that objects carry, as numbers; what is absent or unreadable counts as long ago."""

from __future__ import annotations

from stowplan.cluster.times import seconds_of, stamp, stamp_micro

__all__ = ["seconds", "stamp", "stamp_micro"]


def seconds(text: str | None) -> float:
    """The Unix time of a stored time; 0.0 of none."""
    if not text:
        return 0.0
    try:
        return seconds_of(text)
    except ValueError:
        return 0.0
