"""RunResult: the result of a simulation as measures read it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stowplan.columns.array_types import Floats
from stowplan.experiments.measures.occupancy import Occupancy
from stowplan.experiments.measures.queue_fairness import QueueFairness, queue_fairness
from stowplan.inputs.files import read_bytes
from stowplan.inputs.input_error import InputError
from stowplan.insight.pod_placement import Placement
from stowplan.simulation.results.pod_history import TimedPlacement
from stowplan.simulation.results.simulated_objects import SimulatedObjects
from stowplan.simulation.simulate import PLACEMENTS, SERIES, SUMMARY, Simulation
from stowplan.simulation.simulate_jobs import JobSimulation

RUN_MIN_S = 10.0
"""Run times below it count as this in slowdowns, so that the shortest pods do not decide the mean.

Source: Feitelson and Rudolph, "Metrics and Benchmarking for Parallel Job Scheduling" (1998).
"""


class RunResult:
    """Result of one simulation.

    summary: as in `summary.json`. placements: as in `placements.jsonl`, with times in a replay.
    series: columns of `series.csv`, float64 (n_samples,); empty without a replay. objects: nodes
    and pods as simulated; None for a result that was read from files, where measures that need
    requests, queues or nodes have no value.
    """

    def __init__(
        self,
        summary: Mapping[str, Any],
        placements: Sequence[Placement],
        series: Mapping[str, Floats],
        objects: SimulatedObjects | None = None,
    ) -> None:
        self.summary = summary
        self.placements = placements
        self.series = series
        self.objects = objects

    @classmethod
    def of(cls, run: Simulation | JobSimulation) -> RunResult:
        """The result of `simulate` or `simulate_jobs`."""
        if isinstance(run, JobSimulation):
            return cls(run.summary, run.placements, {})
        return cls(run.summary, run.placements, _columns(run.series), run.objects)

    @classmethod
    def read(cls, folder: str | Path) -> RunResult:
        """The result that `stowplan simulate --out` wrote; raises InputError."""
        place = Path(folder)
        summary = _decoded(place / SUMMARY, dict[str, Any])
        kind = TimedPlacement if "waits_s" in summary else Placement
        lines = read_bytes(place / PLACEMENTS).splitlines()
        try:
            placements = [msgspec.json.decode(line, type=kind) for line in lines]
        except msgspec.MsgspecError as problem:
            raise InputError.at(str(place / PLACEMENTS), "", problem) from None
        series = place / SERIES
        return cls(summary, placements, _columns(read_bytes(series)) if series.exists() else {})

    @property
    def is_replay(self) -> bool:
        """True where pods arrived and ended in virtual time."""
        return "waits_s" in self.summary

    def times(self, name: str) -> Floats:
        """float64 (n_pods,): a time of every placement in seconds, such as `bound_s`; NaN where it
        did not happen, and without a replay."""
        found = [getattr(one, name, None) for one in self.placements]
        return np.array([np.nan if at is None else at for at in found], dtype=np.float64)

    @cached_property
    def waits_s(self) -> Floats:
        """float64 (n_bound,): sorted seconds from arrival to the first binding of bound pods."""
        waits = self.times("wait_s")
        return np.sort(waits[~np.isnan(waits)])

    @cached_property
    def slowdowns(self) -> Floats:
        """float64 (n_ended,): sorted bounded slowdowns of ended pods: time from arrival to end per
        run time, which counts as at least `RUN_MIN_S`; at least 1."""
        arrived, started, ended = (
            self.times(f"{name}_s") for name in ("arrived", "started", "ended")
        )
        runs = np.maximum(ended - started, RUN_MIN_S)
        found = np.maximum((ended - arrived) / runs, 1.0)
        return np.sort(found[~np.isnan(found)])

    @cached_property
    def occupancy(self) -> Occupancy | None:
        """Which pod had which node from when to when; None without objects."""
        if self.objects is None:
            return None
        end_s = float(self.summary["ended_at_s"]) if self.is_replay else 0.0
        return Occupancy.of(self.placements, self.objects, end_s)

    @cached_property
    def fairness(self) -> QueueFairness | None:
        """What queues had of what they deserve; None without objects, nodes or pods."""
        if self.occupancy is None or self.objects is None:
            return None
        return queue_fairness(self.occupancy, self.objects.objects)


def _columns(data: bytes) -> dict[str, Floats]:
    rows = list(csv.reader(io.StringIO(data.decode())))
    if not rows:
        return {}
    values = np.array(rows[1:], dtype=np.float64).reshape(len(rows) - 1, len(rows[0]))
    return {name: values[:, index] for index, name in enumerate(rows[0])}


def _decoded(file: Path, kind: type[dict[str, Any]]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.json.decode(read_bytes(file), type=kind)
    except msgspec.MsgspecError as problem:
        raise InputError.at(str(file), "", problem) from None
    return found
