"""Times as the API spells them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def of_seconds(wall_ns: int) -> str:
    """RFC 3339 in whole seconds. wall_ns: nanoseconds since 1970."""
    return _at(wall_ns).strftime("%Y-%m-%dT%H:%M:%SZ")


def of_micros(wall_ns: int) -> str:
    """RFC 3339 with six decimals."""
    return _at(wall_ns).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _at(wall_ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=wall_ns // 1000)
