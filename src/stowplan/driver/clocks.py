"""Clocks: one that is steady and goes on while the computer sleeps, and the time of day."""

from __future__ import annotations

import time

from stowplan.client.api_calls import RequestTime
from stowplan.client.timestamps import rfc3339_micros, rfc3339_seconds

# Where the system has no such clock the steady one has to do: it may stand still in between.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_ns() -> int:
    """Nanoseconds from some beginning; never goes back, and counts sleep."""
    return time.clock_gettime_ns(_CLOCK)


def request_time() -> RequestTime:
    """What time it is."""
    wall_ns = time.time_ns()
    return RequestTime(monotonic_ns(), wall_ns, rfc3339_seconds(wall_ns), rfc3339_micros(wall_ns))
