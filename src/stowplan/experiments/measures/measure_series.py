"""Measures over time: the samples of a replay and the shares of its queues."""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec
import numpy as np

from stowplan.columns.array_types import Floats
from stowplan.experiments.measures.measure_table import largest_queues
from stowplan.experiments.measures.run_result import RunResult
from stowplan.objects.encoding.dataframes import to_dataframe


class MeasureSeries(msgspec.Struct):
    """Measures over time.

    times: float64 (n_samples,), seconds since the start. columns: measure -> float64 (n_samples,),
    NaN where there is no value.
    """

    times: Floats
    columns: dict[str, Floats]

    def to_frame(self, library: str = "") -> Any:
        """A DataFrame of pandas or polars with `time_s` and a column per measure."""
        columns = {"time_s": self.times, **self.columns}
        return to_dataframe({name: values.tolist() for name, values in columns.items()}, library)


def measures_over_time(run: RunResult) -> MeasureSeries:
    """What changes over time in a run: the columns of `series.csv`; and, from the placements,
    `running` pods, `arrived.RESOURCE` (requests of all that has arrived per allocatable amount),
    `fairness_jain` and `queue_share.QUEUE`. A fill has no samples."""
    times = run.series.get("time_s")
    if times is None:
        return MeasureSeries(np.zeros(0), {})
    columns = {name: values for name, values in run.series.items() if name != "time_s"}
    used = run.occupancy
    if used is not None and used.offered.shape[0]:
        began = np.searchsorted(np.sort(used.start), times, side="right")
        ended = np.searchsorted(np.sort(used.end[np.isfinite(used.start)]), times, side="right")
        columns["running"] = (began - ended).astype(np.float64)
        order = np.argsort(used.arrived, kind="stable")
        count = np.searchsorted(used.arrived[order], times, side="right")
        sums = np.concatenate(
            (np.zeros((1, len(used.resources))), np.cumsum(used.requests[order], axis=0))
        )
        for column, name in enumerate(used.resources):
            offered = float(used.offered[:, column].sum())
            if offered:
                columns[f"arrived.{name}"] = sums[count, column] / offered
    shares = run.fairness
    if shares is not None:
        columns["fairness_jain"] = np.interp(times, shares.times, shares.jain())
        for name, row in zip(shares.queues, shares.shares, strict=True):
            columns[f"queue_share.{name}"] = np.interp(times, shares.times, row)
    return MeasureSeries(times, columns)


def fairness_over_time(run: RunResult) -> bytes:
    """The content of `fairness.csv`: `time_s`, `fairness_jain`, and `queue_share.QUEUE` of the
    queues with the most pods; `nan` where there is no value. Empty without a replay, and without
    objects."""
    shares = run.fairness if run.is_replay else None
    if shares is None:
        return b""
    wanted = largest_queues(run)
    columns = {"time_s": shares.times, "fairness_jain": shares.jain()}
    for name, row in zip(shares.queues, shares.shares, strict=True):
        if name in wanted:
            columns[f"queue_share.{name}"] = row
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    rows = np.column_stack(list(columns.values()))
    writer.writerows([f"{value:.6g}" for value in row] for row in rows.tolist())
    return text.getvalue().encode()
