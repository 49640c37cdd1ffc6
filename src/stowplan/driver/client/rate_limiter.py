"""Client-side rate limiter."""

from __future__ import annotations

import asyncio

from stowplan.driver.clocks import monotonic_ns

SECOND = 1_000_000_000


class RateLimiter:
    """Token bucket of `burst` tokens that fills at `qps` a second; qps of 0 or below: no limit.

    First come, first served.
    """

    def __init__(self, qps: float = 0, burst: int = 1) -> None:
        self._qps = qps
        self._burst = max(1, burst)
        self._left = float(self._burst)
        self._at = monotonic_ns()

    async def turn(self) -> None:
        """Wait for a token."""
        if self._qps <= 0:
            return
        now = monotonic_ns()
        self._left = min(self._burst, self._left + (now - self._at) / SECOND * self._qps)
        self._at = now
        # A negative count is the number of requests that wait already.
        self._left -= 1
        if self._left < 0:
            await asyncio.sleep(-self._left / self._qps)
