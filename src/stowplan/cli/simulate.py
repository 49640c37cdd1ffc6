"""`stowplan simulate`: let a scheduler place the pods of a cluster and say what happened."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.text import Text

from stowplan.cli import options, simulate_options
from stowplan.cli.progress import progress
from stowplan.cli.screen import screen
from stowplan.cli.simulate_jobs import (
    hold_sessions,
    is_for_sessions,
    refuse_beside_sessions,
)
from stowplan.cli.simulate_table import print_run, print_seeds
from stowplan.sim.cluster import Cluster, read_cluster
from stowplan.sim.deciders import read_deciders
from stowplan.sim.outputs import check_directory, write_files
from stowplan.sim.over_seeds import files_of, over_seeds
from stowplan.sim.simulate import Simulation, simulate
from stowplan.sim.workload import generate

N_NODES = 1000
N_PODS = 5000


@click.command(name="simulate")
@options.cluster
@options.config
@options.profile
@options.plugin
@simulate_options.extender
@options.compat
@click.option(
    "--node-count",
    type=click.IntRange(min=1),
    help=f"As many nodes, of the same mix.  [default of the generated workload: {N_NODES}]",
)
@click.option(
    "--pod-count",
    type=click.IntRange(min=0),
    help=f"Pods of the generated workload.  [default: {N_PODS}]",
)
@simulate_options.replaying
@simulate_options.seeds
@simulate_options.n_seeds
@options.out
@options.output
@click.option("--strict", is_flag=True, help="Exit with 1 when a pod was not placed.")
def command(
    clusters: tuple[str, ...],
    config_files: tuple[str, ...],
    profile: str | None,
    plugin_files: tuple[str, ...],
    extender_files: tuple[str, ...],
    compat: str | None,
    node_count: int | None,
    pod_count: int | None,
    seed: tuple[int, ...],
    n_seeds: int | None,
    out: str | None,
    output: str,
    strict: bool,
    **replaying: Any,
) -> None:
    """Let a scheduler place the pending pods of a cluster.

    Without --cluster the cluster is generated: a mixed GPU and CPU cluster, the same for the same
    seed. Pods come one by one in the order of their arrival, each is tried once, and nobody leaves.
    With --replay they come and leave by their times, and the scheduler queues, tries again and
    preempts as it would in a cluster; a day takes seconds.
    With a file of actions and tiers sessions are held until one changes nothing, or with --replay
    one after the other as time passes.
    """
    _check(clusters, pod_count, out)
    seeds = _seeds(seed, n_seeds)
    replay = simulate_options.options_of(replaying)
    files = read_cluster(clusters) if clusters else None
    deciders = read_deciders(config_files, plugin_files, compat or "")
    if is_for_sessions(deciders, files) and replay is None:
        _refuse_extenders(extender_files)
        refuse_beside_sessions(seeds, node_count, profile)
        sys.exit(hold_sessions(files, deciders, seeds[0], out, output, strict=strict))

    how = {
        "config": config_files,
        "plugins": plugin_files,
        "extenders": extender_files,
        "profile": profile,
        "node_count": None if files is None else node_count,
        "replay": replay,
        "compat": compat or "",
    }
    n_nodes, n_pods = node_count or N_NODES, _default(pod_count, N_PODS)
    runs = {one: _run(files or generate(n_nodes, n_pods, one), one, how) for one in seeds}
    sys.exit(_finish(runs, out, output, strict=strict))


def _check(clusters: tuple[str, ...], pod_count: int | None, out: str | None) -> None:
    """Refuse what cannot be used before anything is read."""
    if clusters and pod_count is not None:
        raise click.UsageError("--pod-count sizes the generated workload only.")
    if out is not None:
        check_directory(out)


def _refuse_extenders(files: tuple[str, ...]) -> None:
    """Raise a usage error for answers that nobody would ask for."""
    if files:
        raise click.UsageError("--extender cannot stand beside actions and tiers.")


def _finish(runs: dict[int, Simulation], out: str | None, output: str, *, strict: bool) -> int:
    """Write and print what the runs came to; the exit code."""
    if out is not None:
        write_files(out, files_of(runs))
    _tell(runs, output, out)
    short = any(run.summary["placed"] < run.summary["pods"] for run in runs.values())
    return 1 if strict and short else 0


def _default(given: int | None, usual: int) -> int:
    return usual if given is None else given


def _seeds(seed: tuple[int, ...], n_seeds: int | None) -> tuple[int, ...]:
    if n_seeds is None:
        return tuple(dict.fromkeys(seed))
    if len(seed) > 1:
        raise click.UsageError("--seeds counts from one --seed; several were given.")
    return tuple(range(seed[0], seed[0] + n_seeds))


def _tell(runs: dict[int, Simulation], output: str, out: str | None) -> None:
    only = next(iter(runs.values())) if len(runs) == 1 else None
    if output == "json":
        click.echo(json.dumps(over_seeds(runs) if only is None else only.summary, indent=2))
        return
    paper = screen()
    if only is None:
        print_seeds(over_seeds(runs), paper)
    else:
        print_run(only.summary, paper)
    if out is not None:
        folder = out.rstrip("/") or out
        names = ", ".join(f"{folder}/{name}" for name in files_of(runs) if "/" not in name)
        more = "" if only is not None else f", and a folder for each of {len(runs)} seeds"
        paper.print(Text(f"Written: {names}{more}"), soft_wrap=True)


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Garbage in cycles is looked for less often: a run makes many objects, and hardly any such."""
    usual = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _run(cluster: Cluster, seed: int, how: dict[str, Any]) -> Simulation:
    what = "placing" if how["replay"] is None else "replaying"
    with collected_rarely(), progress(what, len(cluster.pending())) as told:
        return simulate(cluster, seed=seed, on_progress=told.show, on_tick=told.tick, **how)
