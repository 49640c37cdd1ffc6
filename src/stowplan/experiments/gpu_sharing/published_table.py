"""Tables of runs in the layout of the published figures, and their differences.

A line is `metric,workload,policy,seed` and 131 figures, columns 0 to 130. A line is found by its
first four cells.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stowplan.experiments.gpu_sharing.experiment import DECIMALS, N_COLUMNS
from stowplan.inputs.files import read_bytes
from stowplan.inputs.input_error import InputError

KEYS = ("metric", "workload", "policy", "seed")
HEADER = (*KEYS, *(str(column) for column in range(N_COLUMNS)))

RunKey = tuple[str, str, int]
"""Workload, policy, seed."""

Table = dict[RunKey, dict[str, list[float]]]
"""By run and metric, the figures of the columns."""


def read_table(path: str | Path) -> Table:
    """A table of a file, which may be compressed; raises InputError."""
    lines = csv.reader(io.StringIO(read_bytes(path).decode()))
    header = next(lines, [])
    if header != list(HEADER):
        wanted = f"the header {','.join(KEYS)},0,1,...,{N_COLUMNS - 1}"
        raise InputError(str(path), "line 1", repr(",".join(header)[:60]), wanted)
    table: Table = {}
    for number, cells in enumerate(lines, start=2):
        try:
            metric, workload, policy, seed = cells[:4]
            figures = [float(cell) for cell in cells[4:]]
            run = workload, policy, int(seed)
        except ValueError:
            wanted = "a metric, workload, policy, whole seed, and numbers"
            raise InputError(str(path), f"line {number}", "", wanted) from None
        if len(figures) != N_COLUMNS:
            raise InputError(str(path), f"line {number}", f"{len(figures)} figures", f"{N_COLUMNS}")
        table.setdefault(run, {})[metric] = figures
    return table


def table_text(table: Mapping[RunKey, Mapping[str, Sequence[float]]]) -> str:
    """The table as CSV, sorted by metric, workload, policy and seed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for metric in DECIMALS:
        for run in sorted(table):
            writer.writerow((metric, *run, *table[run][metric]))
    return text.getvalue()


class TableDifference(NamedTuple):
    """Of one metric of one run. n_different: columns that differ. largest: difference. column: of
    the largest, -1 for none."""

    metric: str
    n_different: int
    largest: float
    column: int


def differences(
    ours: Mapping[str, Sequence[float]], theirs: Mapping[str, Sequence[float]]
) -> list[TableDifference]:
    """Per metric of `theirs`, how far our figures are from them."""
    found = []
    for metric, published in theirs.items():
        apart = [abs(a - b) for a, b in zip(ours[metric], published, strict=True)]
        largest = max(apart)
        n_different = sum(one > 0 for one in apart)
        found.append(
            TableDifference(
                metric, n_different, largest, apart.index(largest) if n_different else -1
            )
        )
    return found


def mean_and_deviation(figures: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation, which divides by the number of figures, as published."""
    mean = math.fsum(figures) / len(figures)
    return mean, math.sqrt(math.fsum((one - mean) ** 2 for one in figures) / len(figures))
