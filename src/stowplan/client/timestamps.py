"""Timestamps in RFC 3339, from nanoseconds since 1970."""

from __future__ import annotations

from stowplan.apis.machinery.timestamps import format_time
from stowplan.objects.encoding.duration import SECOND


def rfc3339_seconds(wall_ns: int) -> str:
    """RFC 3339 in whole seconds. wall_ns: nanoseconds since 1970."""
    return format_time(wall_ns // SECOND)


def rfc3339_micros(wall_ns: int) -> str:
    """RFC 3339 with six decimals."""
    seconds, rest = divmod(wall_ns, SECOND)
    return f"{format_time(seconds)[:-1]}.{rest // 1000:06d}Z"
