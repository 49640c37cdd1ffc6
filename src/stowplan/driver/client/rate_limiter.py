"""Limiter: so many requests a second on average, and some at once."""

from __future__ import annotations

import asyncio

from stowplan.driver.clocks import monotonic_ns
from stowplan.objects.encoding.duration import SECOND


class RateLimiter:
    """A bucket of `burst` tokens that fills at `qps` a second; qps of 0 or below: no limit.

    Whoever comes first goes first.
    """

    def __init__(self, qps: float = 0, burst: int = 1) -> None:
        self._qps = qps
        self._burst = max(1, burst)
        self._left = float(self._burst)
        self._at = monotonic_ns()

    async def turn(self) -> None:
        """Wait for one's turn."""
        if self._qps <= 0:
            return
        now = monotonic_ns()
        self._left = min(self._burst, self._left + (now - self._at) / SECOND * self._qps)
        self._at = now
        # Below zero are those who wait already.
        self._left -= 1
        if self._left < 0:
            await asyncio.sleep(-self._left / self._qps)
