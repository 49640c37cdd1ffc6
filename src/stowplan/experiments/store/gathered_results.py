"""Files that gather the runs of an experiment. They depend on the finished runs alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stowplan.experiments.gpu_sharing.arrived_load import read_columns
from stowplan.experiments.gpu_sharing.published_table import RunKey, table_text
from stowplan.experiments.plan.plan_file import GPU_SHARING, ExperimentPlan
from stowplan.experiments.plan.plan_inputs import RunTask, canonical, versions
from stowplan.experiments.plan.run_matrix import option_text
from stowplan.experiments.results_summary import MeasureRow, comparison_of
from stowplan.experiments.store.run_store import (
    COLUMNS_FILE,
    MEASURES_FILE,
    RUNS,
    RunStore,
    StoreError,
)
from stowplan.experiments.store.sqlite_index import INDEX_FILE, IndexRow, write_index
from stowplan.inputs.input_error import InputError
from stowplan.simulation.results.result_files import write_files
from stowplan.simulation.simulate import as_json

EXPERIMENT_FILE, MEASURES_TABLE = "experiment.json", "measures.csv"
COMPARISON_FILE, GPU_TABLE = "comparison.json", "table.csv"
DONE, FAILED, MISSING = "done", "failed", "missing"


class RunStatus(msgspec.Struct, frozen=True):
    """A run of the experiment. status: done, failed or missing."""

    key: str
    policy: str
    workload: str
    options: dict[str, Any]
    seed: int
    status: str


def gather(
    store: RunStore, plan: ExperimentPlan, tasks: Sequence[RunTask], command: str
) -> tuple[list[RunStatus], tuple[str, ...]]:
    """Write the files that gather these runs; returns the runs, and the names of the files.

    Raises StoreError.
    """
    runs = [_status(store, task) for task in tasks]
    rows = sorted(_measure_rows(store, runs), key=_row_order)
    files = {
        EXPERIMENT_FILE: as_json(_described(plan, tasks, runs, command)),
        MEASURES_TABLE: _measures_text(plan, rows).encode(),
        COMPARISON_FILE: as_json(comparison_of(rows, _policies(plan, runs))),
    }
    if plan.mode == GPU_SHARING:
        files[GPU_TABLE] = _gpu_table(store, runs).encode()
    try:
        write_files(store.folder, files)
        write_index(store.folder, *_index_rows(store, runs))
    except InputError as problem:
        raise StoreError(str(problem)) from None
    return runs, (*files, INDEX_FILE)


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
        "title": plan.title,
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


def _measure_rows(store: RunStore, runs: Iterable[RunStatus]) -> Iterable[MeasureRow]:
    for run in runs:
        if run.status == DONE:
            text = (store.run_folder(run.key) / MEASURES_FILE).read_bytes()
            options = tuple(run.options.items())
            for name, value in msgspec.json.decode(text).items():
                yield MeasureRow(run.policy, run.workload, options, run.seed, name, value)


def _index_rows(
    store: RunStore, runs: Iterable[RunStatus]
) -> tuple[list[IndexRow], list[IndexRow]]:
    """Rows of the tables of the index."""
    run_rows: list[IndexRow] = []
    measure_rows: list[IndexRow] = []
    for run in sorted(runs, key=lambda one: one.key):
        options = canonical(run.options).decode()
        cells = (run.key, run.policy, run.workload, options, run.seed, run.status)
        run_rows.append((*cells, f"{RUNS}/{run.key}"))
        rows = _measure_rows(store, [run])
        measure_rows += sorted((run.key, row.measure, row.value) for row in rows)
    return run_rows, measure_rows


def _row_order(row: MeasureRow) -> tuple[Any, ...]:
    options = tuple((name, option_text(value)) for name, value in row.options)
    return row.policy, row.workload, options, row.seed, row.measure


def _measures_text(plan: ExperimentPlan, rows: Iterable[MeasureRow]) -> str:
    """CSV; an empty value where a run has none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("policy", "workload", *plan.options, "seed", "measure", "value"))
    for row in rows:
        options = (option_text(value) for _, value in row.options)
        value = "" if row.value is None else row.value
        writer.writerow((row.policy, row.workload, *options, row.seed, row.measure, value))
    return text.getvalue()


def _gpu_table(store: RunStore, runs: Iterable[RunStatus]) -> str:
    """The table in the layout of the published figures."""
    table: dict[RunKey, dict[str, list[float]]] = {}
    for run in runs:
        if run.status == DONE:
            text = (store.run_folder(run.key) / COLUMNS_FILE).read_text(encoding="utf-8")
            table[run.workload, run.policy, run.seed] = read_columns(text)
    return table_text(table)
