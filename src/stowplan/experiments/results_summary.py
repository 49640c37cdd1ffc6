"""Measures of runs, and their comparison: where experiments call measures and statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from stowplan.experiments.gpu_sharing.experiment import DECIMALS
from stowplan.experiments.plan.option_values import OptionValue
from stowplan.experiments.statistics.paired_comparison import MeasureText, compare
from stowplan.simulation.results.seed_comparison import figures_of
from stowplan.simulation.simulate import Simulation
from stowplan.simulation.simulate_jobs import JobSimulation

Measures = dict[str, float | None]

ARRIVED_AT = (100, 130)
"""Percent of arrived milli at which a fill of the OpenB cluster is measured."""


class MeasureRow(NamedTuple):
    """A measure of a run; value None where the run has none."""

    policy: str
    workload: str
    options: tuple[tuple[str, OptionValue], ...]
    seed: int
    measure: str
    value: float | None


def measures_of_simulation(result: Simulation | JobSimulation) -> Measures:
    """Measures of a fill or a replay, by name."""
    return dict(figures_of(result.summary))


def measures_of_fill(columns: Mapping[str, Sequence[float]]) -> Measures:
    """Measures of a fill of the OpenB cluster, from its columns."""
    return {
        f"{metric}_at_{percent}": columns[metric][percent]
        for metric in DECIMALS
        for percent in ARRIVED_AT
    }


def comparison_of(rows: Sequence[MeasureRow], policies: Sequence[str]) -> dict[str, Any]:
    """Every policy against the first, by workload and options; JSON types.

    rows: of all runs. policies: in the order of the plan.
    """
    groups: dict[tuple[str, tuple[tuple[str, OptionValue], ...]], list[MeasureRow]] = {}
    for row in rows:
        groups.setdefault((row.workload, row.options), []).append(row)
    return {
        "baseline": policies[0],
        "comparisons": [
            {
                "workload": workload,
                "options": dict(options),
                "policy": policy,
                "measures": _compared(found, policies[0], policy),
            }
            for (workload, options), found in groups.items()
            for policy in policies[1:]
        ],
    }


def _compared(rows: Sequence[MeasureRow], baseline: str, policy: str) -> list[Any]:
    sides: dict[str, dict[str, dict[int, float]]] = {baseline: {}, policy: {}}
    for row in rows:
        if row.policy in sides and row.value is not None:
            sides[row.policy].setdefault(row.measure, {})[row.seed] = row.value
    names = sorted(sides[baseline].keys() & sides[policy].keys())
    measures = [MeasureText(name, name) for name in names]
    found = compare(sides[baseline], sides[policy], measures, (baseline, policy))
    return [msgspec.to_builtins(one) for one in found]
