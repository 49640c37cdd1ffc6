"""Token bucket: a rate limit that allows bursts."""

from __future__ import annotations

from stowplan.objects.encoding.duration import SECOND


class TokenBucket:
    """`burst` tokens, refilled at `rate` a second. Times are nanoseconds of a monotonic clock.

    The count may be negative: `take` lends tokens to callers that then wait for them.
    """

    def __init__(self, rate: float, burst: int, now: int = 0) -> None:
        self.rate = rate
        self._burst = float(burst)
        self._left = self._burst
        self._at = now

    def refill(self, now: int) -> float:
        """Add the tokens of the time since the last call; returns the number of tokens."""
        if now > self._at:
            more = (now - self._at) * self.rate / SECOND
            self._left, self._at = min(self._burst, self._left + more), now
        return self._left

    def take(self, now: int) -> float:
        """Take a token, also from an empty bucket; returns the seconds until it is available."""
        self._left = self.refill(now) - 1
        return max(0.0, -self._left / self.rate)
