"""What a report shows, as values: charts, tables, sections.

The scripts in `static/` draw them in a browser, `svg` draws the charts without a script, and `page`
writes the tables. Texts are plain; markup is escaped where it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

Numbers = Sequence[float | None]


class Axis(msgspec.Struct, frozen=True):
    """An axis. unit: `percent`, `time` (seconds), `count` or `number`. is_log: logarithmic; values
    below `low` are drawn at `low`. low, high: ends of the scale, None: of the data."""

    label: str
    unit: str = "number"
    is_log: bool = False
    low: float | None = None
    high: float | None = None


class Series(msgspec.Struct, frozen=True):
    """A line. low, high: its band, empty for none. None: no value there. colour: index of the
    palette; None: the place in the chart. is_reference: drawn thin and grey, as an ideal is."""

    name: str
    x: Numbers
    y: Numbers
    low: Numbers = ()
    high: Numbers = ()
    colour: int | None = None
    is_reference: bool = False


class LineChart(msgspec.Struct, frozen=True, tag_field="kind", tag="lines"):
    """Lines over a common axis. is_step: a value holds until the next one."""

    title: str
    x: Axis
    y: Axis
    series: list[Series]
    is_step: bool = False
    note: str = ""


class Bars(msgspec.Struct, frozen=True):
    """One bar per group. low, high: ends of the intervals, empty for none."""

    name: str
    values: Numbers
    low: Numbers = ()
    high: Numbers = ()
    colour: int | None = None


class BarChart(msgspec.Struct, frozen=True, tag_field="kind", tag="bars"):
    """Groups of bars with intervals. groups_label: what the groups are."""

    title: str
    groups_label: str
    groups: list[str]
    y: Axis
    series: list[Bars]
    note: str = ""


class Estimate(msgspec.Struct, frozen=True):
    """A value with its interval. verdict: `better`, `worse`, `differs` or `no difference found`."""

    group: str
    name: str
    value: float
    low: float
    high: float
    verdict: str = ""
    colour: int | None = None


class IntervalChart(msgspec.Struct, frozen=True, tag_field="kind", tag="intervals"):
    """Estimates with intervals beside a line at `reference`."""

    title: str
    x: Axis
    estimates: list[Estimate]
    reference: float = 0.0
    note: str = ""


class Layer(msgspec.Struct, frozen=True):
    """Values of a heat map. rows: a label per row. values: base64 of uint8 (n_rows, n_columns), in
    200ths; 255 for no value."""

    name: str
    rows: list[str]
    values: str


class HeatMap(msgspec.Struct, frozen=True, tag_field="kind", tag="heat"):
    """Shares by row and time. at: the columns' places on the axis."""

    title: str
    x: Axis
    at: list[float]
    layers: list[Layer]
    rows_label: str = "node"
    note: str = ""


class ReplayArray(msgspec.Struct, frozen=True):
    """An array in base64, little endian. type: as in the frames of the page's data API. divisor: of
    all values but 2**32 - 1, which stands for never."""

    name: str
    type: str
    values: str
    divisor: int = 1


class ReplayMap(msgspec.Struct, frozen=True, tag_field="kind", tag="replay"):
    """Nodes as a map at any time of a run. data, arrays: as of `GET replay` of the page's data API.
    pods: number of pods that each node got during the run."""

    title: str
    data: dict[str, Any]
    arrays: list[ReplayArray]
    pods: list[int]
    note: str = ""


Chart = LineChart | BarChart | IntervalChart | HeatMap | ReplayMap


class Column(msgspec.Struct, frozen=True):
    """A column of a table. unit: as of an axis, or `text`."""

    name: str
    unit: str = "text"


class ReportTable(msgspec.Struct, frozen=True):
    """A table; cells are texts, numbers or None. is_open: shown at once, else behind its title."""

    title: str
    columns: list[Column]
    rows: list[list[Any]]
    is_open: bool = True
    note: str = ""


class Fact(msgspec.Struct, frozen=True):
    """A key figure. note: a few words about it."""

    label: str
    value: str
    note: str = ""


class Section(msgspec.Struct, frozen=True):
    """A part of a report with a heading."""

    title: str
    items: list[Chart | ReportTable] = []
    texts: list[str] = []


class ReportPage(msgspec.Struct, frozen=True):
    """A whole report."""

    title: str
    subtitle: str
    facts: list[Fact]
    sections: list[Section]
