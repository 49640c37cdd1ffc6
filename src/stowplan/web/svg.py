"""Charts as plain SVG, drawn here: for pages without script.

Colours come from the page's style sheet, by class.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

import numpy as np

from stowplan.simulation.results.node_use import ABSENT, STEPS
from stowplan.web.charts import Axis, BarChart, Chart, HeatMap, IntervalChart, LineChart, ReplayMap
from stowplan.web.number_texts import text_of

WIDTH, HEIGHT = 620, 270
LEFT, RIGHT, TOP, BOTTOM = 56, 22, 10, 40
COLOURS = 8
ROW = 24
CELLS = 60, 40
"""Columns and rows of a heat map without script."""
STOPS = (
    (247, 246, 235),
    (214, 229, 190),
    (132, 200, 178),
    (58, 157, 183),
    (41, 98, 160),
    (37, 37, 110),
)
_SECONDS = (
    *(0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200),
    *(10800, 21600, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000, 8640000),
)


class Scale(NamedTuple):
    """From values to places. forth: of a value, before it is stretched."""

    low: float
    high: float
    start: float
    end: float
    unit: str
    is_log: bool

    def at(self, value: float) -> float:
        """The place of a value."""
        forth: Callable[[float], float] = math.log10 if self.is_log else float
        if self.is_log:
            value = max(value, self.low)
        low, high = forth(self.low), forth(self.high)
        return self.start + (forth(value) - low) / (high - low) * (self.end - self.start)


def svg_of(chart: Chart) -> str:
    """The chart as an `svg` element."""
    match chart:
        case LineChart():
            return _lines(chart)
        case BarChart():
            return _bars(chart)
        case IntervalChart():
            return _intervals(chart)
        case HeatMap():
            return _heat_map(chart)
        case ReplayMap():
            # It is moved through time; the heat map beside it has all times at once.
            return ""


def _svg(title: str, width: float, height: float, shapes: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" '
        f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}">'
        f"{''.join(shapes)}</svg>"
    )


def scale_of(axis: Axis, values: Iterable[float | None], start: float, end: float) -> Scale:
    """A scale over the values."""
    known = [value for value in values if value is not None]
    low = axis.low if axis.low is not None else min(known, default=0.0)
    high = axis.high if axis.high is not None else max(known, default=low + 1)
    if axis.is_log:
        low = max(low, 1e-9)
    if high <= low:
        high = low * 10 if axis.is_log else low + 1
    return Scale(low, high, start, end, axis.unit, axis.is_log)


def value_scale(axis: Axis, values: Iterable[float | None], start: float, end: float) -> Scale:
    """A scale from zero to a tick above the values."""
    known = [value for value in values if value is not None]
    low = axis.low if axis.low is not None else min(0.0, *known, 0.0)
    high = axis.high if axis.high is not None else max(known, default=low + 1)
    high = high if high > low else low + 1
    if axis.high is None:
        step = _step(high - low, 4, axis.unit)
        high = math.ceil(high / step - 1e-9) * step
    return Scale(low, high, start, end, axis.unit, is_log=False)


def ticks_of(scale: Scale, count: int) -> list[float]:
    """Round values of a scale."""
    if scale.is_log:
        first, last = math.ceil(math.log10(scale.low)), math.floor(math.log10(scale.high))
        found = [10.0**k for k in range(first, last + 1)]
        return found[:: max(1, math.ceil(len(found) / count))]
    step = _step(scale.high - scale.low, count, scale.unit)
    first = math.ceil(scale.low / step - 1e-9)
    return [k * step for k in range(first, math.floor(scale.high / step + 1e-9) + 1)]


def _step(span: float, count: int, unit: str) -> float:
    if unit == "time":
        return next((step for step in _SECONDS if span / step <= count), span / count)
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(one * power for one in (1, 2, 5, 10, 20) if span / (one * power) <= count)
    return max(1.0, step) if unit == "count" else step


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _x_axis(scale: Scale, label: str, bottom: float, right: float = RIGHT) -> list[str]:
    shapes = []
    for tick in ticks_of(scale, max(2, int((scale.end - scale.start) // 74))):
        x = scale.at(tick)
        shapes.append(_line("grid", x, TOP, x, bottom))
        shapes.append(_text(x, bottom + 16, text_of(tick, scale.unit), "tick", "middle"))
    shapes.append(_text(scale.end, bottom + 33, label, "axis", "end"))
    shapes.append(_line("rule", scale.start, bottom, WIDTH - right, bottom))
    return shapes


def _y_axis(scale: Scale) -> list[str]:
    shapes = []
    for tick in ticks_of(scale, 5):
        y = scale.at(tick)
        shapes.append(_line("grid", LEFT, y, WIDTH - RIGHT, y))
        shapes.append(_text(LEFT - 7, y + 4, text_of(tick, scale.unit), "tick", "end"))
    return shapes


def _legend(names: Sequence[tuple[str, str]], top: float) -> tuple[list[str], float]:
    """The legend below a chart, and its height. names: (class, name)."""
    if len(names) < 2:
        return [], 0
    shapes, x, y = [], 4.0, top + 14
    for kind, name in names:
        width = 34 + 6.6 * len(name)
        if x > 4 and x + width > WIDTH:
            x, y = 4.0, y + 18
        shapes.append(_line(f"line {kind}", x, y - 4, x + 18, y - 4))
        shapes.append(_text(x + 23, y, name, "tick"))
        x += width
    return shapes, y - top + 8


def _colour(colour: int | None, place: int) -> str:
    return f"c{(place if colour is None else colour) % COLOURS}"


def _lines(chart: LineChart) -> str:
    own = [one for one in chart.series if not one.is_reference]
    bottom = HEIGHT - BOTTOM
    x = scale_of(chart.x, (v for one in own for v in one.x), LEFT, WIDTH - RIGHT)
    values = (v for one in own for v in (*one.y, *one.low, *one.high))
    y = value_scale(chart.y, values, bottom, TOP)
    shapes = _y_axis(y) + _x_axis(x, chart.x.label, bottom)
    names, bands = [], []
    lines = []
    for place, one in enumerate(chart.series):
        kind = "reference" if one.is_reference else _colour(one.colour, place)
        names.append((kind, one.name))
        if len(one.low):
            forth = _path(one.x, one.high, x, y, is_step=chart.is_step)
            back = _path(one.x[::-1], one.low[::-1], x, y, is_step=False).replace("M", "L")
            bands.append(f'<path class="band {kind}" d="{forth}{back}Z"/>')
        path = _path(one.x, one.y, x, y, is_step=chart.is_step)
        lines.append(f'<path class="line {kind}" d="{path}"/>')
    legend, more = _legend(names, HEIGHT)
    # An inner picture cuts what is outside of it, without an id.
    wide, high = WIDTH - RIGHT - LEFT, bottom - 4
    frame = f'x="{LEFT}" y="4" width="{wide}" height="{high}" viewBox="{LEFT} 4 {wide} {high}"'
    inner = f"<svg {frame}>{''.join(bands)}{''.join(lines)}</svg>"
    return _svg(chart.title, WIDTH, HEIGHT + more, [*shapes, inner, *legend])


def _path(
    xs: Sequence[float | None],
    ys: Sequence[float | None],
    x: Scale,
    y: Scale,
    *,
    is_step: bool,
) -> str:
    parts: list[str] = []
    is_open = False
    for at, value in zip(xs, ys, strict=True):
        if value is None or at is None:
            is_open = False
            continue
        px, py = f"{x.at(at):.1f}", f"{y.at(value):.1f}"
        if not is_open:
            parts.append(f"M{px} {py}")
        else:
            parts.append(f"H{px}V{py}" if is_step else f"L{px} {py}")
        is_open = True
    return "".join(parts)


def _bars(chart: BarChart) -> str:
    bottom = HEIGHT - BOTTOM
    values = (v for one in chart.series for v in (*one.values, *one.low, *one.high))
    y = value_scale(chart.y, values, bottom, TOP)
    shapes = _y_axis(y)
    room = (WIDTH - RIGHT - LEFT) / max(1, len(chart.groups))
    thick = min(44.0, room * 0.82 / max(1, len(chart.series)))
    for g, group in enumerate(chart.groups):
        middle = LEFT + room * (g + 0.5)
        for place, one in enumerate(chart.series):
            value = one.values[g]
            if value is None:
                continue
            left = middle + (place - len(chart.series) / 2) * thick
            top, base = sorted((y.at(value), y.at(0)))
            shapes.append(
                f'<rect class="bar {_colour(one.colour, place)}" x="{left + 1:.1f}" y="{top:.1f}" '
                f'width="{max(1.0, thick - 2):.1f}" height="{base - top:.1f}"/>'
            )
            if len(one.low) and one.low[g] is not None and one.high[g] is not None:
                ends = y.at(one.low[g] or 0.0), y.at(one.high[g] or 0.0)
                shapes.append(
                    _line("whisker", left + thick / 2, ends[0], left + thick / 2, ends[1])
                )
        letters = max(4, int(room / 6.6))
        label = group if len(group) <= letters else f"{group[: letters - 1]}…"
        shapes.append(_text(middle, bottom + 16, label, "tick", "middle"))
    shapes.append(_text(WIDTH - RIGHT, bottom + 33, chart.groups_label, "axis", "end"))
    shapes.append(_line("rule", LEFT, y.at(0), WIDTH - RIGHT, y.at(0)))
    names = [(_colour(one.colour, k), one.name) for k, one in enumerate(chart.series)]
    legend, more = _legend(names, HEIGHT)
    return _svg(chart.title, WIDTH, HEIGHT + more, [*shapes, *legend])


def _intervals(chart: IntervalChart) -> str:
    names = list(dict.fromkeys(one.name for one in chart.estimates))
    groups = [
        (name, list(found)) for name, found in groupby(chart.estimates, lambda one: one.group)
    ]
    height = 56 + ROW * (len(groups) + len(chart.estimates))
    left, bottom = 220.0, height - 42.0
    ends = [v for one in chart.estimates for v in (one.low, one.high, one.value)]
    x = scale_of(chart.x, [*ends, chart.reference], left, WIDTH - 24)
    shapes = _x_axis(x, chart.x.label, bottom)
    shapes.append(_line("cursor", x.at(chart.reference), 6, x.at(chart.reference), bottom))
    y = 8.0
    for group, found in groups:
        shapes.append(_text(0, y + 15, group, "head"))
        y += ROW
        for one in found:
            kind = _colour(one.colour, names.index(one.name))
            is_open = " open" if one.verdict == "no difference found" else ""
            shapes.append(_text(12, y + 15, one.name, "tick"))
            shapes.append(_line(f"interval {kind}", x.at(one.low), y + 11, x.at(one.high), y + 11))
            shapes.append(
                f'<circle class="dot {kind}{is_open}" cx="{x.at(one.value):.1f}" '
                f'cy="{y + 11:.1f}" r="5"/>'
            )
            y += ROW
    return _svg(chart.title, WIDTH, height, shapes)


def _heat_map(chart: HeatMap) -> str:
    """The first layer; neighbouring nodes and times are averaged to at most `CELLS`."""
    layer = chart.layers[0]
    raw = np.frombuffer(base64.b64decode(layer.values), dtype=np.uint8)
    cells = raw.reshape(len(layer.rows), len(chart.at))
    columns, rows = min(CELLS[0], cells.shape[1]), min(CELLS[1], cells.shape[0])
    row_parts = np.array_split(np.arange(cells.shape[0]), rows)
    column_parts = np.array_split(np.arange(cells.shape[1]), columns)
    wide, high = (WIDTH - LEFT - RIGHT) / columns, max(4.0, min(14.0, 240 / rows))
    bottom = TOP + rows * high
    x = scale_of(chart.x, chart.at, LEFT, WIDTH - RIGHT)
    shapes = _x_axis(x, f"{layer.name} by {chart.rows_label}; {chart.x.label}", bottom)
    for r, these in enumerate(row_parts):
        means = [_mean(cells[np.ix_(these, part)]) for part in column_parts]
        place = 0
        for colour, run in groupby(means, _fill):
            length = len(list(run))
            if colour:
                shapes.append(
                    f'<rect x="{LEFT + place * wide:.1f}" y="{TOP + r * high:.1f}" '
                    f'width="{length * wide + 0.2:.1f}" height="{high + 0.2:.1f}" fill="{colour}"/>'
                )
            place += length
    return _svg(chart.title, WIDTH, bottom + BOTTOM, shapes)


def _mean(cells: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> float:
    known = cells[cells != ABSENT]
    return float(known.mean()) / STEPS if known.size else math.nan


def _fill(share: float) -> str:
    """The colour of a share in 24 steps, "" for no value."""
    if math.isnan(share):
        return ""
    place = round(min(share, 1.0) * 24) / 24 * (len(STOPS) - 1)
    k = min(int(place), len(STOPS) - 2)
    parts = (
        round(low + (high - low) * (place - k))
        for low, high in zip(STOPS[k], STOPS[k + 1], strict=True)
    )
    return "#" + "".join(f"{part:02x}" for part in parts)
