"""`stowplan simulate` with sessions: what it refuses, runs and prints."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from rich.console import Console
from rich.text import Text

from stowplan.assembly.deciders import Deciders
from stowplan.cli.tables.console import stdout_console
from stowplan.cli.tables.jobs import print_jobs
from stowplan.cli.tables.simulation_output import TREES, as_csv, as_text
from stowplan.cli.tables.simulations import print_placement_list
from stowplan.inputs.cluster_reader import Cluster
from stowplan.simulation.results.result_files import write_files
from stowplan.simulation.simulate_jobs import JobSimulation, simulate_jobs

JOBS_SHOWN = 40


def is_for_sessions(deciders: Deciders, files: Cluster | None) -> bool:
    """True where nothing but sessions decides, or some pod waits for them."""
    batch = deciders.batch
    if batch is None or not deciders.configuration.profiles:
        return batch is not None
    waiting = files.pending() if files is not None else ()
    return any(pod.spec.scheduler_name in batch.scheduler_names for pod in waiting)


def refuse_beside_sessions(
    seeds: tuple[int, ...],
    node_count: int | None,
    profile: str | None,
) -> None:
    """Raise a usage error for what has no meaning for sessions on a cluster that stands still."""
    wrong = {
        "several seeds": len(seeds) > 1,
        "--node-count": node_count is not None,
        "--profile": profile is not None,
    }
    for name, is_given in wrong.items():
        if is_given:
            raise click.UsageError(f"{name} can stand beside actions and tiers with --replay only.")


def run_sessions(
    cluster: Cluster | None,
    deciders: Deciders,
    seed: int,
    out: str | None,
    output: str,
    *,
    strict: bool,
) -> int:
    """Hold sessions, print or write what came of them; the exit code."""
    if cluster is None:
        raise click.UsageError("Sessions need --cluster: the generated workload has no gangs.")
    run = simulate_jobs(cluster, config=deciders, seed=seed)
    if out is not None:
        write_files(out, run.files())
    if output in TREES:
        placements: list[Any] = [msgspec.to_builtins(one) for one in run.placements]
        click.echo(as_text(run.summary | {"placements": placements}, output), nl=False)
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
    told = run.summary
    head = f"{told['placed']:,} of {told['pods']:,} pods placed on {told['nodes']:,} nodes"
    more = f"{told['jobs_ready']:,} of {told['jobs']:,} jobs ready"
    console.print(Text(f"{head}, {more}, in {told['sessions']:,} sessions", style="bold"))
    unready = [job for job in run.jobs if job.waiting or job.promised or not job.is_ready]
    ready = [job for job in run.jobs if job.placed and job not in unready]
    shown = (unready + ready)[:JOBS_SHOWN]
    if shown:
        print_jobs(shown, console)
    hidden = len(unready) + len(ready) - len(shown)
    if hidden:
        console.print(Text(f"and {hidden:,} jobs more"))
    if run.evicted:
        gone = ", ".join(f"{pod} ({why})" for pod, why in run.evicted.items())
        console.print(Text(f"Evicted: {gone}"), soft_wrap=True)
    for note in told["notes"]:
        console.print(Text(f"Note: {note}"), soft_wrap=True)
