"""experiment(): run the matrix of a plan, and gather the results in a folder.

Runs are found by a hash of all that goes into them, so that an interrupted experiment goes on where
it was, and shards on several machines share a folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stowplan.experiments.export.result_tables import (
    check_pyarrow,
    export_parquet,
    measures_table,
)
from stowplan.experiments.plan.plan_file import ExperimentPlan, plan_of_tree, read_plan
from stowplan.experiments.plan.plan_inputs import PlanInputs, RunTask
from stowplan.experiments.plan.run_matrix import Shard, cells_of, parse_shard, selected
from stowplan.experiments.results_summary import check_names, conditions_that_hold
from stowplan.experiments.runner.process_pool import PoolLimits, run_in_pool
from stowplan.experiments.runner.run_worker import RunOutcome
from stowplan.experiments.statistics.matrix_comparison import ExperimentComparison, Row
from stowplan.experiments.store.gathered_results import DONE, MISSING, RunStatus, gather
from stowplan.experiments.store.run_store import ExperimentStoreError, RunStore
from stowplan.inputs.counts import count_of
from stowplan.inputs.files import read_text
from stowplan.inputs.input_error import InputError
from stowplan.objects.encoding.html_summary import html_summary, html_table
from stowplan.simulation.simulate import as_json
from stowplan.web.report import REPORT, write_report

PlanSource = str | Path | Mapping[str, Any] | ExperimentPlan
"""A file, or its content as a mapping."""


class ExperimentProgress(NamedTuple):
    """n_present: runs that were there before. n_done: of those to be executed, n_failed among
    them."""

    n_present: int
    n_to_run: int
    n_done: int
    n_failed: int


OnProgress = Callable[[ExperimentProgress], None]


class ExperimentResult(msgspec.Struct):
    """Result of an experiment; its figures are files in `folder`.

    runs: those selected, of all shards. n_present: runs that were there before. n_executed: runs of
    this call. failures: key -> error, of this call. files: names of the files that gather
    them. rows: measures, as in measures.csv. comparison: of the policies; None without a finished
    run. failed_conditions: those of fail_if that hold, with their values.
    """

    folder: Path
    runs: list[RunStatus]
    n_present: int
    n_executed: int
    failures: dict[str, str]
    files: tuple[str, ...]
    rows: list[Row]
    comparison: ExperimentComparison | None
    failed_conditions: list[str] = []

    def __repr__(self) -> str:
        done = sum(run.status == DONE for run in self.runs)
        return f"ExperimentResult({done:,} of {count_of(len(self.runs), 'run')} in {self.folder})"

    def _repr_html_(self) -> str:
        """For notebooks: what differs, by how much, and failed runs."""
        parts = () if self.comparison is None else self.comparison.html_parts()
        failures = html_table(("Run", "Error"), self.failures.items())
        return html_summary(repr(self), *parts, failures)

    def to_frame(self, library: str = "") -> Any:
        """The measures as a DataFrame of pandas or polars, one row per run and measure."""
        return measures_table(self.rows).to_frame(library)


class ExperimentSettings(msgspec.Struct, frozen=True):
    """Settings of the execution of runs and of the files that are written; none changes results.

    jobs: processes; None: one per processor. shard: I/N, auto or auto/N; "" for the whole. dask:
    address of a Dask scheduler, "" for this machine. timeout_s: of one run. memory_bytes: address
    space of one worker, 0 for no limit. fail_if: conditions on the measures, as
    `wait_p99: B > A by 5%`. report: write report.html. parquet: write the tables as Parquet files.
    """

    jobs: int | None = None
    shard: str = ""
    dask: str = ""
    timeout_s: float | None = None
    memory_bytes: int = 0
    fail_if: tuple[str, ...] = ()
    report: bool = True
    parquet: bool = False

    def limits(self) -> PoolLimits:
        """The pool on this machine; raises InputError."""
        n_workers = n_processors() if self.jobs is None else self.jobs
        if n_workers < 1:
            raise InputError("jobs", "", str(n_workers), "a whole number from 1 up")
        return PoolLimits(n_workers, self.timeout_s, self.memory_bytes)


def n_processors() -> int:
    """Processors that this process may use; of the whole machine where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def experiment(
    plan: PlanSource,
    *,
    out: str | Path,
    traces: str | Path | None = None,
    only: Iterable[str] = (),
    jobs: int | None = None,
    shard: str = "",
    dask: str = "",
    timeout_s: float | None = None,
    memory_bytes: int = 0,
    fail_if: Iterable[str] = (),
    report: bool = True,
    parquet: bool = False,
    on_progress: OnProgress | None = None,
) -> ExperimentResult:
    """Run the matrix of a plan: workloads x policies x options x seeds.

    plan: a file (see docs/experiments.md), or the same as a mapping. out: folder of the results;
    runs that are there already are not run again. traces: folder in which trace files are looked
    for. only: KEY=VALUE, any value of a key and all keys. The others: see `ExperimentSettings`. A
    failing run stops no other and is in `ExperimentResult.failures`. Raises InputError, ConfigError
    and ContractError for bad input before anything runs, and ExperimentStopped where results
    cannot be written (its subclass ExperimentStoreError) or a Dask scheduler is lost.
    """
    conditions = tuple(fail_if)
    settings = ExperimentSettings(
        jobs, shard, dask, timeout_s, memory_bytes, conditions, report, parquet
    )
    prepared = prepare_experiment(plan, traces, tuple(only))
    return run_experiment_plan(prepared, out, settings, on_progress)


class PreparedExperiment(NamedTuple):
    """A checked plan with the tasks of its selected runs. only: the selection as given."""

    plan: ExperimentPlan
    tasks: list[RunTask]
    only: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command of the experiment, without what does not change results."""
        parts = ["stowplan experiment", Path(self.plan.source).name]
        return " ".join([*parts, *(f"--only {one}" for one in self.only)])


def prepare_experiment(
    source: PlanSource, traces: str | Path | None, only: Sequence[str]
) -> PreparedExperiment:
    """Read and check all that can be before a run; raises InputError, ConfigError and
    ContractError."""
    plan, folder = _read(source)
    cells = selected(cells_of(plan), plan, only)
    if traces is not None and not Path(traces).is_dir():
        raise InputError("--traces", str(traces), "no such directory", "a directory")
    inputs = PlanInputs(plan, folder, None if traces is None else Path(traces))
    return PreparedExperiment(plan, inputs.tasks(cells), tuple(dict.fromkeys(only)))


def _read(source: PlanSource) -> tuple[ExperimentPlan, Path]:
    """The plan, and the folder to which its paths are relative."""
    if isinstance(source, ExperimentPlan):
        return source, Path()
    if isinstance(source, str | Path):
        return read_plan(read_text(source), str(source)), Path(source).parent
    if isinstance(source, Mapping):
        return plan_of_tree(dict(source), "plan"), Path()
    raise InputError("plan", "", f"a {type(source).__name__}", "a file name or a mapping")


def run_experiment_plan(
    prepared: PreparedExperiment,
    out: str | Path,
    settings: ExperimentSettings,
    on_progress: OnProgress | None = None,
) -> ExperimentResult:
    """Execute what is missing, and gather; raises InputError and ExperimentStopped."""
    # Before the runs: a mistake should not cost them.
    own = prepared.tasks[0].measures if prepared.tasks else ()
    policies = list(dict.fromkeys(task.cell.policy for task in prepared.tasks))
    check_names(prepared.plan, policies, own, settings.fail_if)
    if settings.dask:
        # Imported here: an extra.
        from stowplan.experiments.runner.dask_executor import check_dask_settings

        check_dask_settings(settings.dask, settings.timeout_s)
    if settings.parquet:
        check_pyarrow()
    share = parse_shard(settings.shard, os.environ)
    limits = settings.limits()
    store = RunStore(out)
    store.prepare()
    with store.lock("" if share == Shard() else f"{share.number}-of-{share.n_shards}"):
        tasks = list({task.key: task for task in prepared.tasks}.values())
        shared = share.share(tasks)
        missing = [task for task in shared if not store.is_done(task.key)]
        execution = _Execution(store, missing, len(shared) - len(missing), on_progress)
        execution.run(settings, limits)
        with store.gathering():
            found = gather(store, prepared.plan, tasks, prepared.command)
            further = _further_files(store, found.runs, settings)
    return ExperimentResult(
        store.folder,
        found.runs,
        execution.n_present,
        len(missing),
        execution.failures,
        (*found.files, *further),
        found.rows,
        found.comparison,
        conditions_that_hold(found.rows, prepared.plan, settings.fail_if),
    )


def _further_files(
    store: RunStore, runs: Sequence[RunStatus], settings: ExperimentSettings
) -> list[str]:
    """Write the report and the Parquet files; their names. Raises ExperimentStoreError.

    They read all runs: of several shards only the last one writes them.
    """
    if settings.shard and any(run.status == MISSING for run in runs):
        return []
    names = []
    try:
        if settings.report:
            names.append(write_report(store.folder).name)
        else:
            # That of an earlier call shows other runs.
            (store.folder / REPORT).unlink(missing_ok=True)
        if settings.parquet:
            keys = [run.key for run in runs if run.status == DONE]
            names += [file.name for file in export_parquet(store.folder, keys=keys)]
    except (InputError, OSError) as problem:
        raise ExperimentStoreError(str(problem)) from None
    return names


class _Execution:
    """Executes the missing runs of this process, and writes down which failed."""

    def __init__(
        self,
        store: RunStore,
        missing: Sequence[RunTask],
        n_present: int,
        on_progress: OnProgress | None,
    ) -> None:
        self.store = store
        self.missing = missing
        self.n_present = n_present
        self.failures: dict[str, str] = {}
        self._on_progress = on_progress
        self._n_done = 0
        self._tasks = {task.key: task for task in missing}

    def run(self, settings: ExperimentSettings, limits: PoolLimits) -> None:
        """Execute; what an interruption leaves half is removed."""
        self.store.remove_parts(self._tasks)
        self._report()
        if not self.missing:
            return
        try:
            if settings.dask:
                # Imported here: an extra.
                from stowplan.experiments.runner.dask_executor import run_on_dask

                run_on_dask(self.missing, settings.dask, settings.timeout_s, self._on_outcome)
            else:
                run_in_pool(self.missing, str(self.store.folder), limits, self._on_outcome)
        finally:
            self.store.remove_parts(self._tasks)

    def _on_outcome(self, outcome: RunOutcome) -> None:
        self._n_done += 1
        if outcome.error:
            self.failures[outcome.key] = outcome.error
            self.store.write_failure(outcome.key, self._failure(outcome))
        else:
            if outcome.files:
                self.store.write_run(outcome.key, outcome.files)
            self.store.clear_failure(outcome.key)
        self._report()

    def _failure(self, outcome: RunOutcome) -> bytes:
        task = self._tasks[outcome.key]
        return as_json(
            {
                "key": outcome.key,
                **msgspec.to_builtins(task.cell),
                "error": outcome.error,
                "traceback": outcome.traceback,
                "command": task.command,
            }
        )

    def _report(self) -> None:
        if self._on_progress is not None:
            counts = (self.n_present, len(self.missing), self._n_done, len(self.failures))
            self._on_progress(ExperimentProgress(*counts))
