"""`stowplan simulate` with sessions: checks of the options, the run, and its output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.text import Text

from stowplan.assembly.deciders import Deciders
from stowplan.cli.options import TREES
from stowplan.cli.tables.console import print_names, stdout_console, tree_text
from stowplan.cli.tables.jobs import print_jobs
from stowplan.cli.tables.simulation_output import as_csv, unplaced_names
from stowplan.cli.tables.simulations import print_placement_list
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.recording.recording_header import SchedulerRecorder
from stowplan.simulation.results.result_files import write_files
from stowplan.simulation.simulate_jobs import JobSimulation, simulate_jobs

JOBS_LISTED = 40


def check_session_options(
    seeds: tuple[int, ...], node_count: int | None, profile: str | None
) -> None:
    """Raise a usage error for options that sessions support with --replay only."""
    given = {
        "several seeds": len(seeds) > 1,
        "--node-count": node_count is not None,
        "--profile": profile is not None,
    }
    for name, is_given in given.items():
        if is_given:
            raise click.UsageError(f"{name} cannot be used with actions and tiers without --replay")


def run_sessions(
    cluster: Cluster | None,
    deciders: Deciders,
    seed: int,
    out: str | None,
    output: str,
    *,
    strict: bool,
    recording: tuple[SchedulerRecorder | None, Sequence[str]],
    on_files: Callable[[dict[str, bytes]], None],
) -> int:
    """Run sessions, and print and write the results; the exit code. recording: the recorder, and
    the plugin files that it notes. on_files: called with the result files by name."""
    if cluster is None:
        raise click.UsageError(
            "no cluster given: the generated workload has no gangs for actions and tiers"
        )
    recorder, plugins = recording
    run = simulate_jobs(
        cluster, config=deciders, plugins=list(plugins), seed=seed, recorder=recorder
    )
    if out is not None:
        write_files(out, run.files())
    on_files(run.files())
    if output in TREES:
        placements: list[Any] = [msgspec.to_builtins(one) for one in run.placements]
        click.echo(tree_text(run.summary | {"placements": placements}, output), nl=False)
    elif output == "name":
        print_names("pod", unplaced_names({"": run.placements}))
    elif output == "csv":
        click.echo(as_csv({"": run.placements}), nl=False)
    else:
        _print(run, stdout_console())
        if output == "wide":
            print_placement_list(run.placements, stdout_console())
        if out is not None:
            stdout_console().print(
                Text(f"Written: {', '.join(f'{out}/{name}' for name in run.files())}")
            )
    return 1 if strict and has_unplaced_pods(run.summary) else 0


def has_unplaced_pods(summary: dict[str, Any]) -> bool:
    """True where a pod was not placed or not created."""
    return summary["placed"] < summary["pods"] or bool(summary["not_created"])


def _print(run: JobSimulation, console: Console) -> None:
    summary = run.summary
    nodes = count_of(summary["nodes"], "node")
    head = f"{summary['placed']:,} of {summary['pods']:,} pods placed on {nodes}"
    more = f"{summary['jobs_ready']:,} of {summary['jobs']:,} jobs ready"
    sessions = count_of(summary["sessions"], "session")
    console.print(Text(f"{head}, {more}, in {sessions}", style="bold"))
    unready = [job for job in run.jobs if job.waiting or job.promised or not job.is_ready]
    ready = [job for job in run.jobs if job.placed and job not in unready]
    listed = (unready + ready)[:JOBS_LISTED]
    if listed:
        print_jobs(listed, console)
    hidden = len(unready) + len(ready) - len(listed)
    if hidden:
        console.print(Text(f"and {count_of(hidden, 'more job')}"))
    if run.evicted:
        evicted = ", ".join(f"{pod} ({why})" for pod, why in run.evicted.items())
        console.print(Text(f"Evicted: {evicted}"), soft_wrap=True)
    for note in summary["notes"]:
        console.print(Text(f"Note: {note}"), soft_wrap=True)
