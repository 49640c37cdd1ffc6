"""Curves for charts: thinned, averaged over seeds, and distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stowplan.web.charts import Series

Floats = NDArray[np.float64]

POINTS = 400
"""Points per line; a chart is no wider than twice that."""
CDF_POINTS = 160


class Curve(NamedTuple):
    """A line of one run. x: ascending. y: NaN for no value."""

    x: Floats
    y: Floats


def thinned(curve: Curve, n_points: int = POINTS) -> Curve:
    """At most `n_points` of the points, by largest triangles, so that peaks stay.

    Source: Steinarsson 2013, Downsampling time series for visual representation, section 4.2.
    """
    x, y = curve
    n = len(x)
    if n <= n_points:
        return curve
    edges = np.linspace(1, n - 1, n_points - 1).astype(int)
    kept = [0]
    for k in range(n_points - 2):
        start, end = edges[k], max(edges[k + 1], edges[k] + 1)
        after = slice(end, edges[k + 2] if k + 2 < len(edges) else n)
        x_next, y_next = (x[after].mean(), y[after].mean()) if end < n else (x[-1], y[-1])
        x_last, y_last = x[kept[-1]], y[kept[-1]]
        area = np.abs(
            (x_last - x_next) * (y[start:end] - y_last)
            - (x_last - x[start:end]) * (y_next - y_last)
        )
        kept.append(start + int(np.argmax(np.nan_to_num(area))))
    kept.append(n - 1)
    return Curve(x[kept], y[kept])


def held(curve: Curve, grid: Floats) -> Floats:
    """The curve at `grid`: each value holds until the next one, and the last one from then on."""
    places = np.searchsorted(curve.x, grid, side="right") - 1
    values = curve.y[np.maximum(places, 0)]
    return np.where(places < 0, np.nan, values)


def line(
    name: str, curves: Sequence[Curve], *, colour: int | None = None, n_points: int = POINTS
) -> Series:
    """The line of one run, or the mean of several with the band from the lowest to the highest."""
    curves = [curve for curve in curves if len(curve.x)]
    if not curves:
        return Series(name, [], [], colour=colour)
    if len(curves) == 1:
        x, y = thinned(curves[0], n_points)
        return Series(name, numbers(x), numbers(y), colour=colour)
    start = min(curve.x[0] for curve in curves)
    grid = np.linspace(start, max(curve.x[-1] for curve in curves), n_points)
    values = np.stack([held(curve, grid) for curve in curves])
    return band(name, grid, values, colour)


def band(name: str, grid: Floats, values: Floats, colour: int | None = None) -> Series:
    """Mean, lowest and highest. values: (n_runs, n_points)."""
    is_known = ~np.isnan(values).all(axis=0)
    grid, values = grid[is_known], values[:, is_known]
    return Series(
        name,
        numbers(grid),
        numbers(np.nanmean(values, axis=0)),
        numbers(np.nanmin(values, axis=0)),
        numbers(np.nanmax(values, axis=0)),
        colour,
    )


def wait_grid(waits: Sequence[Floats]) -> Floats:
    """Places at which distributions of waits are evaluated, on a logarithmic scale."""
    known = np.concatenate([one[np.isfinite(one)] for one in waits]) if waits else np.zeros(0)
    above = known[known > 0]
    if not above.size:
        return np.array([0.001, 1.0])
    low = max(float(above.min()), 0.001)
    high = max(float(above.max()), low * 10)
    return np.geomspace(low, high, CDF_POINTS)


def distribution(
    name: str, waits: Sequence[Floats], grid: Floats, colour: int | None = None
) -> Series:
    """Percent of pods that waited at most so long. waits: one array per run, infinite for pods that
    were never bound."""
    values = np.stack(
        [
            np.searchsorted(np.sort(one), grid * (1 + 1e-9), side="right") * 100 / max(len(one), 1)
            for one in waits
        ]
    )
    if len(waits) == 1:
        return Series(name, numbers(grid), numbers(values[0]), colour=colour)
    return band(name, grid, values, colour)


def numbers(values: Floats) -> list[float | None]:
    """Floats with five digits that count; None for NaN."""
    return [None if value != value else float(f"{value:.5g}") for value in values.tolist()]
