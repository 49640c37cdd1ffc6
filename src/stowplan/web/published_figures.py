"""Figures 7, 9 and 11 to 14 of the FGD paper, from the table of an experiment.

Source: Weng et al., "Beware of Fragmentation" (USENIX ATC 2023). Lines are medians over the seeds
with the middle half as band, bars are means with one standard deviation, as published.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stowplan.web.charts import Axis, BarChart, Bars, Chart, LineChart, Section, Series
from stowplan.web.curves import numbers

Floats = NDArray[np.float64]
TableRow = tuple[str, str, str, int, list[float]]

DEFAULT = "default"
ARRIVED = Axis("arrived requests, of the cluster's GPU capacity", "percent", low=0.0, high=120.0)
FULL = 100
"""Column of the bars: as much has arrived as the cluster has."""
POLICIES = ("FGD", "BestFit", "GpuPacking", "GpuClustering", "DotProd", "Random")
BAR_FIGURES = (
    ("gpushare", "Figure 11: unallocated GPU", "GPU requests of pods with a part of a card"),
    ("multigpu", "Figure 12: unallocated GPU", "GPU requests of pods with several cards"),
    ("gpuspec", "Figure 13: unallocated GPU", "pods that want a model of GPU"),
    ("cpu", "Figure 14: unallocated GPU", "pods without GPU"),
)


class PublishedTable(NamedTuple):
    """Lines of the table by metric, workload and policy. values: (n_seeds, n_columns)."""

    values: dict[tuple[str, str, str], Floats]
    policies: list[str]
    workloads: list[str]

    @classmethod
    def of(cls, rows: Sequence[TableRow]) -> PublishedTable:
        """Group the lines; policies in the order of the paper, others after them."""
        found: dict[tuple[str, str, str], list[list[float]]] = {}
        for metric, workload, policy, _, figures in rows:
            found.setdefault((metric, workload, policy), []).append(figures)
        policies = {policy for _, _, policy in found}
        ordered = [*(one for one in POLICIES if one in policies), *sorted(policies - {*POLICIES})]
        values = {key: np.array(lines, dtype=float) for key, lines in found.items()}
        return cls(values, ordered, list(dict.fromkeys(workload for _, workload, _ in found)))

    def of_policies(self, metric: str, workload: str) -> list[tuple[int, str, Floats]]:
        """Place, name and values of each policy that has them."""
        return [
            (place, policy, self.values[metric, workload, policy])
            for place, policy in enumerate(self.policies)
            if (metric, workload, policy) in self.values
        ]


def published_sections(rows: Sequence[TableRow]) -> list[Section]:
    """The figures as far as the table has their workloads."""
    table = PublishedTable.of(rows)
    if not table.values:
        return []
    workload = DEFAULT if DEFAULT in table.workloads else table.workloads[0]
    of = "" if workload == DEFAULT else f", workload {workload}"
    items: list[Chart] = [
        *_lines(table, "frag_pct_of_capacity", workload, f"Figure 7(a): fragments of all GPUs{of}"),
        *_lines(table, "frag_pct_of_idle", workload, f"Figure 7(b): fragments of idle GPUs{of}"),
        *_unallocated(table, workload, f"Figure 9(a): unallocated GPUs{of}"),
    ]
    for family, title, what in BAR_FIGURES:
        items += _bars(table, family, title, what)
    text = (
        "Lines are medians over the seeds, bands the middle half; bars are means with one standard "
        "deviation, when the requested GPUs equal those of the cluster."
    )
    return [Section("Figures of the FGD paper", list(items), [text])]


def _lines(table: PublishedTable, metric: str, workload: str, title: str) -> list[Chart]:
    found = table.of_policies(metric, workload)
    series = [_median(policy, values, place) for place, policy, values in found]
    y = Axis("fragments", "percent", low=0.0)
    return [LineChart(title, ARRIVED, y, series)] if series else []


def _unallocated(table: PublishedTable, workload: str, title: str) -> list[Chart]:
    found = table.of_policies("alloc_pct", workload)
    series = [_median(policy, 100 - values, place) for place, policy, values in found]
    if not series:
        return []
    ideal = Series("ideal", [0.0, 100.0], [100.0, 0.0], is_reference=True)
    x = Axis(ARRIVED.label, "percent", low=75.0, high=120.0)
    y = Axis("unallocated", "percent", low=0.0, high=25.0)
    return [LineChart(title, x, y, [*series, ideal])]


def _median(name: str, values: Floats, place: int) -> Series:
    grid = np.arange(values.shape[1], dtype=float)
    low, middle, high = np.nanpercentile(values, (25, 50, 75), axis=0)
    if len(values) == 1:
        return Series(name, numbers(grid), numbers(middle), colour=place)
    return Series(name, numbers(grid), numbers(middle), numbers(low), numbers(high), place)


def _bars(table: PublishedTable, family: str, title: str, what: str) -> list[Chart]:
    found = [(name, re.fullmatch(rf"{family}(\d+)", name)) for name in table.workloads]
    members = sorted((int(match[1]), name) for name, match in found if match)
    if not members:
        return []
    # Of pods without GPU, the names have tenths of a percent.
    scale = 10 if family == "cpu" else 1
    groups = [f"{share / scale:g}%" for share, _ in members]
    series = []
    for place, policy in enumerate(table.policies):
        ends = [_mean_and_deviation(table, name, policy) for _, name in members]
        if any(one is not None for one in ends):
            series.append(
                Bars(
                    policy,
                    [one and one[0] for one in ends],
                    [one and one[0] - one[1] for one in ends],
                    [one and one[0] + one[1] for one in ends],
                    place,
                )
            )
    y = Axis("unallocated", "percent", low=0.0)
    return [BarChart(f"{title}, by the share of {what}", what, groups, y, series)]


def _mean_and_deviation(
    table: PublishedTable, workload: str, policy: str
) -> tuple[float, float] | None:
    values = table.values.get(("alloc_pct", workload, policy))
    if values is None or values.shape[1] <= FULL:
        return None
    left = 100 - values[:, FULL]
    return float(left.mean()), float(left.std(ddof=1)) if len(left) > 1 else 0.0
