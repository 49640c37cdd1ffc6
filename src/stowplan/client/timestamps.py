"""Timestamps in RFC 3339, as the API encodes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS_PER_S = 1_000_000


def rfc3339_seconds(wall_ns: int) -> str:
    """RFC 3339 in whole seconds. wall_ns: nanoseconds since 1970."""
    return _second(wall_ns // 1000 // _MICROS_PER_S) + "Z"


def rfc3339_micros(wall_ns: int) -> str:
    """RFC 3339 with six decimals."""
    seconds, micros = divmod(wall_ns // 1000, _MICROS_PER_S)
    return f"{_second(seconds)}.{micros:06d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    """Cached, because many timestamps fall in the same second."""
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
