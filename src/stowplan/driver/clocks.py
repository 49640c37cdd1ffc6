"""Clocks: a monotonic one that counts system sleep, and wall-clock time."""

from __future__ import annotations

import time

from stowplan.client.api_calls import RequestTime
from stowplan.client.timestamps import rfc3339_micros, rfc3339_seconds

# Without CLOCK_BOOTTIME use the monotonic clock, which may stop during sleep.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_ns() -> int:
    """Nanoseconds of a monotonic clock that counts system sleep."""
    return time.clock_gettime_ns(_CLOCK)


def unix_offset_ns() -> int:
    """Unix time minus `monotonic_ns`."""
    return time.time_ns() - monotonic_ns()


def request_time() -> RequestTime:
    """The current time, in the forms that requests need."""
    wall_ns = time.time_ns()
    return RequestTime(monotonic_ns(), wall_ns, rfc3339_seconds(wall_ns), rfc3339_micros(wall_ns))
