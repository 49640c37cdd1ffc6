"""Clocks: one that is steady and goes on while the computer sleeps, and the time of day."""

from __future__ import annotations

import time

from stowplan.client.moments import of_micros, of_seconds
from stowplan.client.performing import Moment

# Where the system has no such clock the steady one has to do: it may stand still in between.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady() -> int:
    """Nanoseconds from some beginning; never goes back, and counts sleep."""
    return time.clock_gettime_ns(_CLOCK)


def moment() -> Moment:
    """What time it is."""
    wall_ns = time.time_ns()
    return Moment(steady(), wall_ns, of_seconds(wall_ns), of_micros(wall_ns))
