"""Files that gather the runs of an experiment. They depend on the finished runs alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec

from stowplan.experiments.gpu_sharing.arrived_load import read_columns
from stowplan.experiments.gpu_sharing.published_table import RunKey, table_text
from stowplan.experiments.plan.plan_file import GPU_SHARING, ExperimentPlan
from stowplan.experiments.plan.plan_inputs import RunTask, canonical, versions
from stowplan.experiments.plan.run_matrix import option_text
from stowplan.experiments.results_summary import comparison_of
from stowplan.experiments.statistics.matrix_comparison import (
    COMPARISON,
    ExperimentComparison,
    Row,
)
from stowplan.experiments.store.run_store import (
    COLUMNS_FILE,
    MEASURES_FILE,
    RUNS,
    ExperimentStoreError,
    RunStore,
)
from stowplan.experiments.store.sqlite_index import INDEX_FILE, IndexRow, write_index
from stowplan.inputs.input_error import InputError
from stowplan.simulation.results.result_files import write_files
from stowplan.simulation.simulate import as_json

EXPERIMENT_FILE, MEASURES_TABLE = "experiment.json", "measures.csv"
GPU_TABLE = "table.csv"
DONE, FAILED, MISSING = "done", "failed", "missing"


class RunStatus(msgspec.Struct, frozen=True):
    """A run of the experiment. status: done, failed or missing."""

    key: str
    policy: str
    workload: str
    options: dict[str, Any]
    seed: int
    status: str


class GatheredResults(NamedTuple):
    """runs: those of the experiment. rows: their measures, policies in the order of the plan.
    comparison: None without rows. files: names of the files that were written."""

    runs: list[RunStatus]
    rows: list[Row]
    comparison: ExperimentComparison | None
    files: tuple[str, ...]


def gather(
    store: RunStore, plan: ExperimentPlan, tasks: Sequence[RunTask], command: str
) -> GatheredResults:
    """Write the files that gather these runs.

    Raises ExperimentStoreError, and InputError for a measure to compare that no run has.
    """
    runs = [_status(store, task) for task in tasks]
    order = [one.name for one in plan.policies]
    by_policy = sorted(runs, key=lambda run: order.index(run.policy))
    rows = [row for run in by_policy for row in _measure_rows(store, plan, run)]
    comparison = comparison_of(rows, plan, tasks[0].measures if tasks else ())
    files = {
        EXPERIMENT_FILE: as_json(_described(plan, tasks, runs, command)),
        MEASURES_TABLE: _measures_text(plan, rows).encode(),
    }
    if comparison is not None:
        files[COMPARISON] = comparison.to_json()
    if plan.mode == GPU_SHARING:
        files[GPU_TABLE] = _gpu_table(store, runs).encode()
    try:
        write_files(store.folder, files)
        write_index(store.folder, *_index_rows(store, plan, runs))
    except InputError as problem:
        raise ExperimentStoreError(str(problem)) from None
    return GatheredResults(runs, rows, comparison, (*files, INDEX_FILE))


def _status(store: RunStore, task: RunTask) -> RunStatus:
    cell = task.cell
    status = DONE if store.is_done(task.key) else MISSING
    if status == MISSING and store.failure_file(task.key).is_file():
        status = FAILED
    return RunStatus(task.key, cell.policy, cell.workload, cell.options, cell.seed, status)


def _policies(plan: ExperimentPlan, runs: Iterable[RunStatus]) -> list[str]:
    present = {run.policy for run in runs}
    return [one.name for one in plan.policies if one.name in present]


def _described(
    plan: ExperimentPlan, tasks: Sequence[RunTask], runs: Sequence[RunStatus], command: str
) -> dict[str, Any]:
    present = {run.workload for run in runs}
    identities = {task.cell.policy: task.identity["policy"] for task in tasks}
    inputs = {task.cell.workload: task.identity["workload"] for task in tasks}
    return {
        "title": plan.title or PurePath(plan.source).stem,
        "mode": plan.mode,
        "policies": _policies(plan, runs),
        "workloads": [one.name for one in plan.workloads if one.name in present],
        "options": {name: list(values) for name, values in plan.options.items()},
        "seeds": sorted({run.seed for run in runs}),
        "runs": [msgspec.to_builtins(run) for run in runs],
        "versions": versions(),
        "hashes": {"policies": identities, "workloads": inputs},
        "command": command,
    }


def _measure_rows(store: RunStore, plan: ExperimentPlan, run: RunStatus) -> list[Row]:
    """The measures of a run in the layout of measures.csv; none unless it is done."""
    if run.status != DONE:
        return []
    text = (store.run_folder(run.key) / MEASURES_FILE).read_bytes()
    options = {name: option_text(run.options[name]) for name in plan.options}
    first = {"policy": run.policy, "workload": run.workload, **options, "seed": run.seed}
    return [
        {**first, "measure": name, "value": value}
        for name, value in msgspec.json.decode(text).items()
    ]


def _measures_text(plan: ExperimentPlan, rows: Iterable[Row]) -> str:
    """CSV, sorted; an empty value where a run has none."""
    columns = ("policy", "workload", *plan.options, "seed", "measure", "value")
    cells = sorted(tuple(row[name] for name in columns) for row in rows)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(cells)
    return text.getvalue()


def _index_rows(
    store: RunStore, plan: ExperimentPlan, runs: Iterable[RunStatus]
) -> tuple[list[IndexRow], list[IndexRow]]:
    """Rows of the tables of the index."""
    run_rows: list[IndexRow] = []
    measure_rows: list[IndexRow] = []
    for run in sorted(runs, key=lambda one: one.key):
        options = canonical(run.options).decode()
        cells = (run.key, run.policy, run.workload, options, run.seed, run.status)
        run_rows.append((*cells, f"{RUNS}/{run.key}"))
        rows = _measure_rows(store, plan, run)
        measure_rows += sorted((run.key, row["measure"], row["value"]) for row in rows)
    return run_rows, measure_rows


def _gpu_table(store: RunStore, runs: Iterable[RunStatus]) -> str:
    """The table in the layout of the published figures."""
    table: dict[RunKey, dict[str, list[float]]] = {}
    for run in runs:
        if run.status == DONE:
            text = (store.run_folder(run.key) / COLUMNS_FILE).read_text(encoding="utf-8")
            table[run.workload, run.policy, run.seed] = read_columns(text)
    return table_text(table)
