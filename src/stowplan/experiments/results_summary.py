"""Measures of runs and their comparison: where experiments call measures and statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stowplan.experiments.gpu_sharing.experiment import DECIMALS
from stowplan.experiments.measures.measure_table import (
    MEASURES,
    Measure,
    compute_measures,
)
from stowplan.experiments.measures.own_measure import own_measure
from stowplan.experiments.measures.run_result import RunResult
from stowplan.experiments.plan.plan_file import GPU_SHARING, ExperimentPlan
from stowplan.experiments.statistics.matrix_comparison import (
    ExperimentComparison,
    Row,
    compare_runs,
)
from stowplan.experiments.statistics.regression_gate import (
    check_conditions,
    check_measure,
    failed_conditions,
)

Measures = dict[str, float | None]

ARRIVED_AT = (100, 130)
"""Percent of arrived milli at which a fill of the OpenB cluster is measured."""
ARRIVED_LOAD = "arrived_load"
"""Field of the summary of such a fill: percent -> metric -> value."""
_BETTER = {"alloc_pct": "higher", "frag_pct_of_capacity": "lower", "frag_pct_of_idle": ""}


def _figure_at(metric: str, percent: int) -> Measure:
    def compute(run: RunResult) -> float | None:
        value: float = run.summary[ARRIVED_LOAD][str(percent)][metric]
        return value

    text = f"{metric} where {percent} % of the cluster's GPUs have been requested"
    is_compared = percent == ARRIVED_AT[0] and bool(_BETTER[metric])
    return Measure(f"{metric}_at_{percent}", "%", _BETTER[metric], compute, text, "", is_compared)


FILL_MEASURES = (
    Measure("pods", "pods", "", lambda run: run.summary["pods"], "pods that arrived"),
    Measure("placed", "pods", "higher", lambda run: run.summary["placed"], "pods with a node"),
    *(_figure_at(metric, percent) for metric in DECIMALS for percent in ARRIVED_AT),
)
"""Measures of a fill of the OpenB cluster."""


def arrived_load_of(columns: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """The figures of the columns at which a fill is measured."""
    return {
        str(percent): {metric: columns[metric][percent] for metric in DECIMALS}
        for percent in ARRIVED_AT
    }


def measures_of_fill(summary: Mapping[str, Any]) -> Measures:
    """Measures of a fill of the OpenB cluster."""
    run = RunResult(summary, [], {})
    found: Measures = {}
    for measure in FILL_MEASURES:
        value = measure.compute(run)
        assert not isinstance(value, Mapping), "none of them is a family"
        found[measure.name] = value
    return found


def measures_of_simulation(result: RunResult, own: Iterable[str] = ()) -> Measures:
    """Measures of a fill or a replay. own: `FILE.py:FUNCTION`, see `own_measure`."""
    return compute_measures(result, [own_measure(source) for source in own])


def comparison_of(
    rows: Sequence[Row], plan: ExperimentPlan, own: Iterable[str] = ()
) -> ExperimentComparison | None:
    """Every policy against the baseline, by workload and options; None without rows.

    rows: policies in the order of the plan, whose first is the baseline unless it names another.
    """
    if not rows:
        return None
    measures = [*FILL_MEASURES, *(own_measure(source) for source in own)]
    baseline = plan.compare.baseline
    present = {row["policy"] for row in rows}
    return compare_runs(
        rows,
        baseline if baseline in present else None,
        plan.compare.measures,
        plan.compare.confidence,
        measures,
    )


def check_names(
    plan: ExperimentPlan, policies: Sequence[str], own: Iterable[str], conditions: Sequence[str]
) -> None:
    """Raise InputError for measures and policies of the comparison and of --fail-if that no run
    will have.

    policies: those that run, in the order of the plan. own: `FILE.py:FUNCTION`.
    """
    if plan.mode == GPU_SHARING:
        measures: tuple[Measure, ...] = FILL_MEASURES
    else:
        measures = (*MEASURES, *(own_measure(source) for source in own))
    for name in plan.compare.measures:
        check_measure(f"{plan.source}: compare.measures", name, measures)
    base = plan.compare.baseline or next(iter(policies), "")
    ordered = [base, *(name for name in policies if name != base)]
    check_conditions(conditions, measures, ordered)


def conditions_that_hold(
    rows: Sequence[Row], plan: ExperimentPlan, conditions: Sequence[str]
) -> list[str]:
    """The conditions of --fail-if that hold, a line each; raises InputError."""
    if not conditions:
        return []
    return failed_conditions(rows, conditions, plan.compare.baseline or None)
