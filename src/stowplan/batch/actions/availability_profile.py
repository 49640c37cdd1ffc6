"""AvailabilityProfile: free resources of every node over time, as backfilling plans with them.

Each node has a step function: free amounts from one breakpoint to the next. Running pods that end
add, reservations subtract. Times are seconds from the session; a time span is half-open.

Source: A. Mu'alem, D. Feitelson, Utilization, predictability, workloads, and user runtime estimates
in scheduling the IBM SP2 with backfilling, IEEE TPDS 12 (2001): the profile of conservative
backfilling, here per node and with several resources.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import msgspec
import numpy as np

from stowplan.batch.state.task_requests import EPSILON
from stowplan.columns.array_types import Bools, Floats, Ints

TICK = 1e-6
"""Times that differ by less are equal, in seconds."""
GROWTH_MIN = 8


class Releases(msgspec.Struct, frozen=True):
    """Ends of running pods. ends: float64 (n,), seconds. rows: int64 (n,). amounts: float64
    (n_resources, n)."""

    ends: Floats
    rows: Ints
    amounts: Floats


class AvailabilityProfile:
    """times: float64 (n_rows, n_steps), ascending, infinity after the last breakpoint of a row.
    free: float64 (n_resources, n_rows, n_steps), from each breakpoint on; the last step of a row is
    repeated."""

    def __init__(self, idle: Floats, releases: Releases) -> None:
        """idle: float64 (n_resources, n_rows), free now."""
        n_resources, n_rows = idle.shape
        order = np.lexsort((releases.ends, releases.rows))
        rows, ends = releases.rows[order], releases.ends[order]
        self._n_steps = np.bincount(rows, minlength=n_rows) + 1
        first = np.cumsum(self._n_steps - 1) - (self._n_steps - 1)
        places = np.arange(rows.shape[0]) - first[rows] + 1
        width = int(self._n_steps.max(initial=1)) + GROWTH_MIN
        self.times: Floats = np.full((n_rows, width), np.inf)
        self.times[:, 0] = 0.0
        self.times[rows, places] = ends
        steps = np.zeros((n_resources, n_rows, width))
        steps[:, :, 0] = idle
        steps[:, rows, places] = releases.amounts[:, order]
        self.free: Floats = np.cumsum(steps, axis=2)

    def earliest(
        self, request: Floats, length_s: float, rows: Ints, not_before_s: float = 0.0
    ) -> Floats:
        """float64 (n_rows,): when one pod can start on each row and stay for its length; infinity
        for never. request: float64 (n_resources,)."""
        times = self.times[rows]
        fits = self._fits(request, rows)
        # When the first step ends that does not fit, from each step on.
        ends = np.where(fits, np.inf, times)
        ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
        starts = np.maximum(times, not_before_s)
        # Unused steps start at infinity.
        known = np.where(np.isinf(starts), 0.0, starts)
        ok = fits & ~np.isinf(starts) & (ends >= known + length_s - TICK)
        found: Floats = np.where(ok, starts, np.inf).min(axis=1, initial=np.inf)
        return found

    def least(self, rows: Ints, start_s: float, length_s: float) -> Floats:
        """float64 (n_resources, n_rows): the least that is free on each row in a time span."""
        times = self.times[rows]
        after = np.concatenate((times[:, 1:], np.full((rows.shape[0], 1), np.inf)), axis=1)
        inside = (after > start_s + TICK) & (times < start_s + max(length_s, 3 * TICK) - TICK)
        found: Floats = np.where(inside, self.free[:, rows], np.inf).min(axis=2)
        return found

    def gang(
        self, requests: Sequence[Floats], length_s: float, rows: Ints, not_before_s: float = 0.0
    ) -> tuple[float, list[int]]:
        """The first time at which all pods of a gang have place for its length, with the row of
        each; infinity and no rows for never. Rows are filled in their order."""
        first = requests[0]
        starts = self.earliest(first, length_s, rows, not_before_s)
        start = float(starts.min(initial=math.inf))
        if math.isinf(start):
            return math.inf, []
        if len(requests) == 1:
            return start, [int(rows[int(starts.argmin())])]
        times = self.times[rows]
        later = np.unique(times[(times > start) & np.isfinite(times)])
        for at in (start, *later.tolist()):
            placed = self._placed(requests, at, length_s, rows)
            if placed:
                return at, placed
        return math.inf, []

    def _placed(
        self, requests: Sequence[Floats], start_s: float, length_s: float, rows: Ints
    ) -> list[int]:
        """A row for each pod from a time on, filled in their order; empty if one has none."""
        left = self.least(rows, start_s, length_s)
        placed: list[int] = []
        for _, same in groupby(requests, key=id):
            alike = list(same)
            request, n_left = alike[0], len(alike)
            asked = request > 0
            counts = ((left[asked] + EPSILON) / request[asked, None]).min(axis=0, initial=np.inf)
            for place in np.flatnonzero(counts >= 1).tolist():
                n_here = int(min(counts[place], n_left))
                left[:, place] -= n_here * request
                placed += [int(rows[place])] * n_here
                n_left -= n_here
                if not n_left:
                    break
            if n_left:
                return []
        return placed

    def reserve(self, row: int, start_s: float, end_s: float, amount: Floats) -> None:
        """Take an amount from a row for a time span; a negative one gives it back."""
        first = self._breakpoint(row, start_s)
        last = self.times.shape[1] if math.isinf(end_s) else self._breakpoint(row, end_s)
        self.free[:, row, first:last] -= amount[:, None]

    def _breakpoint(self, row: int, at_s: float) -> int:
        """Index of the first step of a row that begins at a time; made if there is none."""
        place = int(np.searchsorted(self.times[row], at_s - TICK))
        if place < self.times.shape[1] and self.times[row, place] <= at_s + TICK:
            return place
        if self._n_steps[row] == self.times.shape[1]:
            self._widen()
        self.times[row, place + 1 :] = self.times[row, place:-1].copy()
        self.free[:, row, place + 1 :] = self.free[:, row, place:-1].copy()
        self.times[row, place] = at_s
        self.free[:, row, place] = self.free[:, row, place - 1]
        self._n_steps[row] += 1
        return place

    def _widen(self) -> None:
        n_more = max(self.times.shape[1] // 2, GROWTH_MIN)
        self.times = np.pad(self.times, ((0, 0), (0, n_more)), constant_values=np.inf)
        self.free = np.pad(self.free, ((0, 0), (0, 0), (0, n_more)), mode="edge")

    def _fits(self, request: Floats, rows: Ints) -> Bools:
        """bool (n_rows, n_steps): steps with enough of all resources that are requested."""
        fits = np.ones((rows.shape[0], self.times.shape[1]), dtype=np.bool_)
        for resource in np.flatnonzero(request > 0).tolist():
            fits &= self.free[resource][rows] > request[resource] - EPSILON
        return fits
