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


class FreeRuns:
    """Time spans in which a request fits, by row. rows: kept, since their id is part of a key.
    starts, ends: float64 (n_rows, n_runs), padded with infinity and 0. seen: number of reservations
    that they include."""

    __slots__ = ("ends", "rows", "seen", "starts")

    def __init__(self, rows: Ints, starts: Floats, ends: Floats) -> None:
        self.rows = rows
        self.starts = starts
        self.ends = ends
        self.seen = 0

    def replace(self, places: Ints, starts: Floats, ends: Floats) -> None:
        """Replace the runs at some places."""
        n_more = starts.shape[1] - self.starts.shape[1]
        if n_more > 0:
            pad = ((0, 0), (0, n_more))
            self.starts = np.pad(self.starts, pad, constant_values=np.inf)
            self.ends = np.pad(self.ends, pad)
        self.starts[places], self.ends[places] = np.inf, 0.0
        self.starts[places, : starts.shape[1]] = starts
        self.ends[places, : ends.shape[1]] = ends


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
        # Rows on which something was reserved, in order.
        self._touched: list[int] = []
        self._runs: dict[tuple[int, bytes], FreeRuns] = {}

    def fits(self, request: Floats, start_s: float, length_s: float, rows: Ints) -> Bools:
        """bool (n_rows,): rows on which one pod fits from a time on, for its length. rows: kept as
        part of a key, so that equal ones should be one array."""
        runs = self._runs_of(request, rows)
        end_s = start_s + max(length_s, 3 * TICK)
        inside = (runs.starts <= start_s + TICK) & (runs.ends >= end_s - TICK)
        found: Bools = np.logical_or.reduce(inside, axis=1)
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
        each; infinity and no rows for never. Rows are filled in their order.

        requests: float64 (n_resources,) per pod; equal ones are one object.
        """
        length_s = max(length_s, 3 * TICK)
        least = requests[0] if len(requests) == 1 else np.minimum.reduce(requests)
        times = self._times_for(least, len(requests), length_s, rows, not_before_s)
        is_uniform = all(request is requests[0] for request in requests)
        for at in times.tolist():
            suited = rows
            if is_uniform:
                # In their order, each takes at least one.
                suited = rows[self.fits(least, at, length_s, rows)][: len(requests)]
            placed = self._placed(requests, at, length_s, suited)
            if placed:
                return at, placed
        return math.inf, []

    def _times_for(
        self, request: Floats, n_pods: int, length_s: float, rows: Ints, not_before_s: float
    ) -> Floats:
        """float64, ascending: times from which at least `n_pods` pods fit for a length, of those at
        which their number changes."""
        starts, ends = [], []
        for n_on_row in range(1, n_pods + 1):
            runs = self._runs_of(request * n_on_row, rows)
            first = np.maximum(runs.starts, not_before_s)
            # The last time at which they can start.
            last = runs.ends - length_s if math.isfinite(length_s) else runs.ends
            possible = (first <= last + TICK) & np.isfinite(first)
            if math.isinf(length_s):
                possible &= np.isinf(runs.ends)
            if not possible.any():
                break
            starts.append(first[possible])
            ends.append(last[possible])
        if not starts:
            return np.zeros(0)
        begins, stops = np.sort(np.concatenate(starts)), np.sort(np.concatenate(ends))
        times = np.unique(begins)
        n_begun = np.searchsorted(begins, times + TICK)
        n_stopped = np.searchsorted(stops, times - TICK)
        found: Floats = times[n_begun - n_stopped >= n_pods]
        return found

    def _runs_of(self, request: Floats, rows: Ints) -> FreeRuns:
        """The runs of steps with enough for a request, by row of `rows`; kept, and evaluated again
        for rows with new reservations."""
        key = (id(rows), request.tobytes())
        runs = self._runs.get(key)
        if runs is None:
            runs = self._runs[key] = FreeRuns(rows, *self._evaluated(request, rows))
        elif runs.seen < len(self._touched):
            new = np.unique(np.array(self._touched[runs.seen :], dtype=np.int64))
            places = np.flatnonzero(np.isin(rows, new))
            if places.shape[0]:
                runs.replace(places, *self._evaluated(request, rows[places]))
        runs.seen = len(self._touched)
        return runs

    def _evaluated(self, request: Floats, rows: Ints) -> tuple[Floats, Floats]:
        """Starts and ends of runs, float64 (n_rows, n_runs), padded with infinity and 0."""
        times = self.times[rows]
        fits = self._fits(request, rows) & np.isfinite(times)
        # When the first step begins that does not fit, from each step on.
        ends = np.where(fits | np.isinf(times), np.inf, times)
        ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
        begins = fits.copy()
        begins[:, 1:] &= ~fits[:, :-1]
        number = np.cumsum(begins, axis=1) - 1
        n_runs = int(number.max(initial=0)) + 1
        shape = (rows.shape[0], n_runs)
        found_starts, found_ends = np.full(shape, np.inf), np.zeros(shape)
        row, step = np.nonzero(begins)
        found_starts[row, number[row, step]] = times[row, step]
        found_ends[row, number[row, step]] = ends[row, step]
        return found_starts, found_ends

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
        self._touched.append(row)

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
        fits: Bools = np.ones((rows.shape[0], self.times.shape[1]), dtype=np.bool_)
        for resource in np.flatnonzero(request > 0).tolist():
            fits &= self.free[resource][rows] > request[resource] - EPSILON
        return fits
