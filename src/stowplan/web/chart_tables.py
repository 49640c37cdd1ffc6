"""The values of a chart as a table, for those who do not see it or want the numbers."""

from __future__ import annotations

import base64

import numpy as np

from stowplan.simulation.results.node_use import ABSENT, STEPS
from stowplan.web.charts import (
    BarChart,
    Chart,
    Column,
    HeatMap,
    IntervalChart,
    LineChart,
    ReplayMap,
    ReportTable,
)

ROWS_MAX = 25


def values_of(chart: Chart) -> ReportTable:
    """The table. Of a line chart, at most `ROWS_MAX` places of the axis; of a heat map, a row per
    node with its mean and highest share of each layer. Of a replay, a row
    per node."""
    match chart:
        case LineChart():
            return _of_lines(chart)
        case BarChart():
            return _of_bars(chart)
        case IntervalChart():
            return _of_intervals(chart)
        case HeatMap():
            return _of_heat_map(chart)
        case ReplayMap():
            return _of_replay(chart)


def _of_lines(chart: LineChart) -> ReportTable:
    series = [one for one in chart.series if one.x]
    columns = [Column(chart.x.label, chart.x.unit)]
    columns += [Column(one.name, chart.y.unit) for one in series]
    if not series:
        return ReportTable(chart.title, columns, [])
    places = np.unique(np.concatenate([np.array(one.x, dtype=float) for one in series]))
    if len(places) > ROWS_MAX:
        places = places[np.linspace(0, len(places) - 1, ROWS_MAX).round().astype(int)]
    found = []
    for one in series:
        at = np.searchsorted(np.array(one.x, dtype=float), places, side="right") - 1
        found.append([None if k < 0 else one.y[k] for k in at.tolist()])
    rows = [[place, *row] for place, *row in zip(places.tolist(), *found, strict=True)]
    return ReportTable(chart.title, columns, rows)


def _of_bars(chart: BarChart) -> ReportTable:
    columns = [
        Column(chart.groups_label),
        *(Column(one.name, chart.y.unit) for one in chart.series),
    ]
    rows = [
        [group, *(one.values[k] for one in chart.series)] for k, group in enumerate(chart.groups)
    ]
    return ReportTable(chart.title, columns, rows)


def _of_intervals(chart: IntervalChart) -> ReportTable:
    unit = chart.x.unit
    columns = [Column("Group"), Column("Of"), Column(chart.x.label, unit), Column("From", unit)]
    columns += [Column("To", unit), Column("Verdict")]
    rows = [
        [one.group, one.name, one.value, one.low, one.high, one.verdict] for one in chart.estimates
    ]
    return ReportTable(chart.title, columns, rows)


def _of_heat_map(chart: HeatMap) -> ReportTable:
    columns = [Column(chart.rows_label.capitalize())]
    cells: dict[str, dict[str, tuple[float | None, float | None]]] = {}
    for layer in chart.layers:
        columns += [Column(f"{layer.name}: mean", "percent"), Column("highest", "percent")]
        raw = np.frombuffer(base64.b64decode(layer.values), dtype=np.uint8)
        shares = raw.reshape(len(layer.rows), len(chart.at)).astype(float) * 100 / STEPS
        shares[raw.reshape(shares.shape) == ABSENT] = np.nan
        for name, row in zip(layer.rows, shares, strict=True):
            known = row[~np.isnan(row)]
            both = (float(known.mean()), float(known.max())) if known.size else (None, None)
            cells.setdefault(name, {})[layer.name] = both
    rows = [
        [name, *(value for layer in chart.layers for value in found.get(layer.name, (None, None)))]
        for name, found in cells.items()
    ]
    return ReportTable(chart.title, columns, rows)


def _of_replay(chart: ReplayMap) -> ReportTable:
    rows = [list(row) for row in zip(chart.data["names"], chart.pods, strict=True)]
    columns = [Column("Node"), Column("Pods during the run", "count")]
    return ReportTable(chart.title, columns, rows)
