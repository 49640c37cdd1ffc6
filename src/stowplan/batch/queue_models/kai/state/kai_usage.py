"""Usage of queues over time, for time-based fair shares: our own record, from session to session.

It is kept while the process runs.

Differs: KAI-Scheduler reads it from Prometheus.

Source of windows: KAI-Scheduler, pkg/scheduler/cache/usagedb/prometheus/prometheus.go.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from stowplan.apis.batch.cron_schedule import CronSchedule
from stowplan.batch.queue_models.kai.state.kai_queue import RANGE, Shares

WEEK = 7 * 24 * 3600.0
N_PARTS = 1000
"""Parts of the window in which usage is kept together."""


class UsageRules(msgspec.Struct, frozen=True):
    """half_life: seconds after which usage counts half; None: it counts whole. window: seconds
    after which it no longer counts. is_fixed: windows follow each other, from `start` on (Unix
    seconds), and each begins without usage; otherwise the window ends now. resets: when a window
    begins, instead of all that."""

    half_life: float | None = None
    window: float = WEEK
    is_fixed: bool = False
    start: float = 0.0
    resets: CronSchedule | None = None

    def window_start(self, now: float) -> float:
        """Where the window begins that counts now."""
        if self.resets is not None:
            return _latest_reset(self.resets, now)
        if not self.is_fixed:
            return now - self.window
        if self.start > now:
            return now
        # As in KAI, a window ends only after its last moment.
        n_over = max(0, math.ceil((now - self.start) / self.window) - 1)
        return self.start + n_over * self.window


def _latest_reset(resets: CronSchedule, now: float) -> float:
    """The last reset before now, looked for in the time that the next three take, as in KAI: for
    one that is earlier, the begin of that time. Before all where there are no next ones."""
    third: float | None = now
    for _ in range(3):
        third = None if third is None else resets.next_after(third)
    if third is None:
        return -math.inf
    latest = now - (third - now)
    following = resets.next_after(latest)
    while following is not None and following < now:
        latest, following = following, resets.next_after(following)
    return latest


class _Part:
    """Usage of a part of the window, as it counted at its end."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.ended = began
        self.used: dict[str, list[float]] = {}
        self.offered = [0.0] * len(RANGE)


class KaiUsage:
    """What queues had over time, and what the cluster had."""

    def __init__(self, rules: UsageRules) -> None:
        self._rules = rules
        self._parts: deque[_Part] = deque()
        self._at: float | None = None
        self._held: dict[str, list[float]] = {}
        self._offer: list[float] = [0.0] * len(RANGE)

    def hold(self, allocated: Mapping[str, Sequence[float]], total: Sequence[float]) -> None:
        """From now on queues have these amounts, and the cluster has a total."""
        self._held = {name: list(amounts) for name, amounts in allocated.items()}
        self._offer = list(total)

    def advance(self, now: float) -> None:
        """Count what was held until now. now: seconds."""
        began, self._at = self._at, now
        if began is None or now <= began:
            return
        rules = self._rules
        part = self._parts[-1] if self._parts else None
        if part is None or now - part.began > rules.window / N_PARTS:
            part = _Part(began)
            self._parts.append(part)
        fade = self._weight(now - part.ended)
        took, part.ended = now - began, now
        for held, sums in [
            (self._offer, part.offered),
            *(
                (own, part.used.setdefault(name, [0.0, 0.0, 0.0]))
                for name, own in self._held.items()
            ),
        ]:
            for i in RANGE:
                sums[i] = sums[i] * fade + held[i] * took
        first = rules.window_start(now)
        while self._parts and self._parts[0].ended <= first:
            self._parts.popleft()

    def shares(self) -> Mapping[str, Shares]:
        """Queue -> the part that it had of what the cluster had, by resource, from 0 to 1."""
        now = self._at or 0.0
        offered = [0.0] * len(RANGE)
        used: dict[str, list[float]] = {}
        for part in self._parts:
            weight = self._weight(now - part.ended)
            for i in RANGE:
                offered[i] += weight * part.offered[i]
            for name, amounts in part.used.items():
                sums = used.setdefault(name, [0.0] * len(RANGE))
                for i in RANGE:
                    sums[i] += weight * amounts[i]
        return {name: _ratios(sums, offered) for name, sums in used.items()}

    def _weight(self, age: float) -> float:
        half_life = self._rules.half_life
        return 1.0 if half_life is None else 0.5 ** (age / half_life)


def _ratios(used: Sequence[float], offered: Sequence[float]) -> Shares:
    cpu, memory, cards = (used[i] / offered[i] if offered[i] > 0 else 0.0 for i in RANGE)
    return cpu, memory, cards
