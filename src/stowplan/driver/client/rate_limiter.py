"""Client-side rate limiter."""

from __future__ import annotations

import asyncio

from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.token_bucket import TokenBucket


class RateLimiter:
    """At most `qps` requests a second, `burst` at once; qps of 0 or below: no limit.

    First come, first served.
    """

    def __init__(self, qps: float = 0, burst: int = 1) -> None:
        self._tokens = TokenBucket(qps, max(1, burst), monotonic_ns()) if qps > 0 else None

    async def turn(self) -> None:
        """Wait for a token."""
        if self._tokens is None:
            return
        wait_s = self._tokens.take(monotonic_ns())
        if wait_s > 0:
            await asyncio.sleep(wait_s)
