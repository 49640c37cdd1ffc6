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
import numpy as np

from stowplan.apis.batch.cron_schedule import CronSchedule
from stowplan.batch.queue_models.kai.state.kai_queue import RANGE, Shares

WEEK = 7 * 24 * 3600.0
FETCH_INTERVAL = 60.0
"""KAI's `fetchInterval`: seconds after which its sessions read usage again."""
N_PARTS = 1000
"""Parts of the window in which usage is kept together."""
LEAST_PART = 1e-3
"""Seconds."""
SPARE_QUEUES = 64
"""Queues that are gone whose usage is kept beside that of as many that are there."""


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

    def weight(self, age: float) -> float:
        """How much usage counts after so many seconds."""
        return 1.0 if self.half_life is None else 0.5 ** (age / self.half_life)

    def weighted(self, took: float) -> float:
        """Seconds as which a time up to now counts that took so many."""
        if took <= 0 or self.half_life is None:
            return max(took, 0.0)
        return self.half_life / math.log(2) * -math.expm1(-math.log(2) * took / self.half_life)

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
    """Usage of a part of the window, as it counted at its end. used: float64 (n_queues, 3), amounts
    by resource times seconds; offered: float64 (3,)."""

    def __init__(self, began: float, n_queues: int) -> None:
        self.began = began
        self.ended = began
        self.used = np.zeros((n_queues, len(RANGE)))
        self.offered = np.zeros(len(RANGE))

    def pad(self, n_queues: int) -> None:
        """Make place for the usage of more queues."""
        missing = n_queues - len(self.used)
        if missing > 0:
            self.used = np.vstack([self.used, np.zeros((missing, len(RANGE)))])


class KaiUsage:
    """What queues had over time, and what the cluster had."""

    def __init__(self, rules: UsageRules) -> None:
        self._rules = rules
        self._parts: deque[_Part] = deque()
        self._at: float | None = None
        self._rows: dict[str, int] = {}
        self._held = np.zeros((0, len(RANGE)))
        self._offer = np.zeros(len(RANGE))

    def hold(self, allocated: Mapping[str, Sequence[float]], total: Sequence[float]) -> None:
        """From now on queues have these amounts, and the cluster has a total."""
        if len(self._rows) > 2 * len(allocated) + SPARE_QUEUES:
            self._forget_unused(allocated)
        for name in allocated:
            self._rows.setdefault(name, len(self._rows))
        self._held = np.zeros((len(self._rows), len(RANGE)))
        for name, amounts in allocated.items():
            self._held[self._rows[name]] = amounts
        self._offer = np.array(total, dtype=np.float64)

    def _forget_unused(self, kept: Mapping[str, Sequence[float]]) -> None:
        """Forget queues without usage in the window."""
        n_queues = len(self._rows)
        is_used = np.zeros(n_queues, dtype=bool)
        for part in self._parts:
            part.pad(n_queues)
            is_used |= part.used.any(axis=1)
        names = [name for name, row in self._rows.items() if is_used[row] or name in kept]
        rows = [self._rows[name] for name in names]
        for part in self._parts:
            part.used = part.used[rows]
        self._rows = {name: row for row, name in enumerate(names)}

    def advance(self, now: float) -> None:
        """Count what was held until now. now: seconds."""
        began, self._at = self._at, now
        if began is None or now <= began:
            return
        first = self._rules.window_start(now)
        began = max(began, first)
        # Not in one part: the window would end at its end only.
        step = max(self._rules.window / N_PARTS, (now - began) / N_PARTS, LEAST_PART)
        while began < now:
            ended = min(now, began + step)
            self._count(began, ended)
            began = ended
        while self._parts and self._parts[0].ended <= first:
            self._parts.popleft()

    def _count(self, began: float, ended: float) -> None:
        part = self._parts[-1] if self._parts else None
        if part is None or ended - part.began > self._rules.window / N_PARTS:
            part = _Part(began, len(self._rows))
            self._parts.append(part)
        part.pad(len(self._held))
        fade, more = self._rules.weight(ended - part.ended), self._rules.weighted(ended - began)
        part.used *= fade
        part.used[: len(self._held)] += self._held * more
        part.offered = part.offered * fade + self._offer * more
        part.ended = ended

    def shares(self) -> Mapping[str, Shares]:
        """Queue -> the part that it had of what the cluster had, by resource, from 0 to 1."""
        return self.outlook().shares(self._at or 0.0)

    def outlook(self) -> UsageOutlook:
        """Usage from now on if queues keep what they have."""
        now, n_queues = self._at or 0.0, len(self._rows)
        for part in self._parts:
            part.pad(n_queues)
        ends = np.array([part.ended for part in self._parts])
        used = np.zeros((len(ends) + 1, n_queues + 1, len(RANGE)))
        for i, part in enumerate(self._parts):
            weight = self._rules.weight(now - part.ended)
            used[i, :n_queues], used[i, n_queues] = part.used * weight, part.offered * weight
        held = np.vstack([self._held, self._offer])
        return UsageOutlook(
            self._rules, now, tuple(self._rows), ends, used[::-1].cumsum(axis=0)[::-1], held
        )


class UsageOutlook(msgspec.Struct, frozen=True):
    """Usage at a time from now on, if queues keep what they have. ends: float64 (n_parts,), ends of
    parts in seconds. sums: float64 (n_parts + 1, n_queues + 1, 3), what the parts from one on
    amount to now; the last queue is the cluster. held: float64 (n_queues + 1, 3)."""

    rules: UsageRules
    now: float
    names: tuple[str, ...]
    ends: np.ndarray
    sums: np.ndarray
    held: np.ndarray

    def shares(self, at: float) -> Mapping[str, Shares]:
        """Queue -> its part at a time in seconds, as `KaiUsage.shares`."""
        first = self.rules.window_start(at)
        n_past = int(np.searchsorted(self.ends, first, side="right"))
        sums = self.sums[n_past] * self.rules.weight(at - self.now)
        sums = sums + self.held * self.rules.weighted(at - max(self.now, first))
        offered = sums[-1]
        ratios = np.divide(sums[:-1], offered, out=np.zeros_like(sums[:-1]), where=offered > 0)
        return dict(zip(self.names, map(tuple, ratios.tolist()), strict=True))
