"""What `stowplan experiment` does: prepare the plan, execute it, and say what came of it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple, NoReturn

import click

from stowplan.cli.errors import CommandFailed, print_error
from stowplan.cli.tables.experiment_progress import experiment_progress
from stowplan.experiments.experiment_run import (
    ExperimentResult,
    ExperimentSettings,
    prepare_experiment,
    run_experiment_plan,
)
from stowplan.experiments.experiment_stopped import ExperimentStopped
from stowplan.inputs.counts import count_of

FAILED = 1
FAILURES_LISTED = 10


class ExperimentRequest(NamedTuple):
    """The options of the command, by their names."""

    plan: str
    out: str
    traces: str | None
    only: tuple[str, ...]
    jobs: int | None
    shard: str
    dask: str
    timeout: float | None
    memory: int
    no_report: bool
    parquet: bool
    fail_if: tuple[str, ...]


def execute_plan(request: ExperimentRequest) -> int:
    """Run, and print where the results are; the exit code."""
    if request.dask and (request.jobs is not None or request.memory):
        raise click.UsageError("--jobs and --memory cannot be used with --dask")
    prepared = prepare_experiment(request.plan, request.traces, request.only)
    settings = ExperimentSettings(
        request.jobs,
        request.shard,
        request.dask,
        request.timeout,
        request.memory,
        request.fail_if,
        not request.no_report,
        request.parquet,
    )
    try:
        with _interrupted_by_sigterm(), experiment_progress() as on_progress:
            result = run_experiment_plan(prepared, request.out, settings, on_progress)
    except ExperimentStopped as problem:
        text = f"{problem}; finished runs are kept, and the same command goes on from there"
        raise CommandFailed(text) from None
    _print(result, request.out)
    return FAILED if result.failures or result.failed_conditions else 0


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Clean up on SIGTERM as on Ctrl-C: Slurm and Kubernetes send it before they kill."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print(result: ExperimentResult, out: str) -> None:
    for key, error in list(result.failures.items())[:FAILURES_LISTED]:
        run = next(run for run in result.runs if run.key == key)
        name = f"{run.workload}, {run.policy}, seed {run.seed}"
        print_error(f"{name}: {error} ({out}/failures/{key}.json)")
    n_hidden = len(result.failures) - FAILURES_LISTED
    if n_hidden > 0:
        print_error(f"and {count_of(n_hidden, 'more failed run')}")
    if result.comparison is not None:
        print(result.comparison.text)
    for line in result.failed_conditions:
        print_error(f"--fail-if: {line}")
    n_done = sum(run.status == "done" for run in result.runs)
    n_executed = result.n_executed - len(result.failures)
    parts = [f"{n_done:,} of {count_of(len(result.runs), 'run')} done"]
    parts.append(f"{result.n_present:,} there already, {n_executed:,} executed")
    if result.failures:
        parts.append(f"{len(result.failures):,} failed")
    print(f"{parts[0]} ({', '.join(parts[1:])})", file=sys.stdout)
    print(f"Written: {', '.join(str(result.folder / name) for name in result.files)}")
