"""Exponential backoff with jitter."""

from __future__ import annotations

import numpy as np

from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.timing.due_times import exponential_backoff


class JitteredBackoff:
    """Wait that doubles from first_s to most_s. Each wait is extended by a random part of up to
    `jitter` of it, so that clients that failed together do not retry together."""

    def __init__(
        self,
        rng: np.random.Generator,
        first_s: float = 0.8,
        most_s: float = 30.0,
        jitter: float = 1.0,
    ) -> None:
        self._rng = rng
        self._first_s = first_s
        self._most_s = most_s
        self._jitter = jitter
        self._n_failures = 0

    def next_s(self) -> float:
        """Seconds until the next attempt."""
        wait_s = exponential_backoff(self._n_failures, self._first_s, self._most_s)
        self._n_failures += 1
        return self.jittered(wait_s)

    def jittered(self, wait_s: float) -> float:
        """The wait, extended by a random part."""
        return wait_s * (1 + self._jitter * float(self._rng.random()))

    def reset(self) -> None:
        """Start again from first_s, after a success."""
        self._n_failures = 0


def seconds_after(now: int, wait_s: float) -> int:
    """`now` plus seconds, in whole nanoseconds."""
    return now + round(wait_s * SECOND)
