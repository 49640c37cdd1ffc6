"""`stowplan simulate`: place the pending pods of a cluster and say what happened."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from stowplan.cli import options
from stowplan.cli.screen import screen
from stowplan.sim.cluster import Cluster, read_cluster
from stowplan.sim.outputs import check_directory
from stowplan.sim.simulate import Simulation, simulate
from stowplan.sim.workload import generate

N_NODES = 1000
N_PODS = 5000
REASONS_SHOWN = 12


@click.command(name="simulate")
@options.cluster
@options.config
@options.profile
@options.plugin
@click.option(
    "--node-count",
    type=click.IntRange(min=1),
    help=f"Nodes of the generated workload.  [default: {N_NODES}]",
)
@click.option(
    "--pod-count",
    type=click.IntRange(min=0),
    help=f"Pods of the generated workload.  [default: {N_PODS}]",
)
@options.seed
@options.out
@options.output
@click.option("--strict", is_flag=True, help="Exit with 1 when a pod was not placed.")
def command(
    clusters: tuple[str, ...],
    config_file: str | None,
    profile: str | None,
    plugin_files: tuple[str, ...],
    node_count: int | None,
    pod_count: int | None,
    seed: int,
    out: str | None,
    output: str,
    strict: bool,
) -> None:
    """Place the pending pods of a cluster, one by one in the order of their arrival.

    Without --cluster the cluster is generated: a mixed GPU and CPU cluster, the same for the same
    seed. Nobody leaves; every node is looked at for every pod.
    """
    if clusters and (node_count or pod_count):
        raise click.UsageError("--node-count and --pod-count size the generated workload only.")
    cluster = (
        read_cluster(clusters)
        if clusters
        else generate(node_count or N_NODES, N_PODS if pod_count is None else pod_count, seed)
    )
    if out is not None:
        check_directory(out)
    result = _run(cluster, config_file, profile, plugin_files, seed)
    if out is not None:
        result.write(out)
    if output == "json":
        click.echo(json.dumps(result.summary, indent=2))
    else:
        paper = screen()
        _print(result.summary, paper)
        if out is not None:
            written = f"Written: {out}/placements.jsonl, {out}/summary.json"
            paper.print(Text(written), soft_wrap=True)
    sys.exit(1 if strict and result.summary["placed"] < result.summary["pods"] else 0)


def _run(
    cluster: Cluster,
    config_file: str | None,
    profile: str | None,
    plugin_files: tuple[str, ...],
    seed: int,
) -> Simulation:
    columns = (
        TextColumn("placing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("pods"),
        TimeElapsedColumn(),
    )
    # The bar is for whoever watches: on standard error, and only where that is a terminal.
    console = Console(stderr=True)
    still = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=still) as progress:
        task = progress.add_task("placing", total=len(cluster.pending()))
        return simulate(
            cluster,
            config=config_file,
            plugins=plugin_files,
            profile=profile,
            seed=seed,
            on_progress=lambda done, _: progress.update(task, completed=done),
        )


def _print(summary: dict[str, Any], paper: Console) -> None:
    if not summary["pods"]:
        paper.print("No pod waits for a node.")
    paper.print(
        f"[bold]{summary['placed']:,} of {summary['pods']:,} pods placed[/bold]"
        f" on {summary['nodes']:,} nodes, {summary['pods_per_s']:,.0f} pods/s"
    )
    if summary["failed"]:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("PODS", justify="right")
        table.add_column("NOT PLACED BECAUSE", overflow="fold")
        failed = sorted(summary["failed"].items(), key=lambda item: (-item[1], item[0]))
        for reason, count in failed[:REASONS_SHOWN]:
            table.add_row(f"{count:,}", Text(reason))
        if len(failed) > REASONS_SHOWN:
            rest = sum(count for _, count in failed[REASONS_SHOWN:])
            table.add_row(f"{rest:,}", f"{len(failed) - REASONS_SHOWN} more reasons")
        paper.print(table)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("RESOURCE")
    for column in ("REQUESTED", "OF", "SHARE"):
        table.add_column(column, justify="right")
    for resource, use in summary["utilisation"].items():
        if not use["requested"]:
            continue
        table.add_row(
            resource,
            rounded(resource, use["requested"]),
            rounded(resource, use["allocatable"]),
            f"{use['share']:.1%}",
        )
    paper.print(table)
    for note in summary["notes"]:
        paper.print(Text(f"Note: {note}"), soft_wrap=True)


def rounded(resource: str, amount: int) -> str:
    """An amount in base units for people: whole CPUs, GiB, or a count."""
    if resource == "cpu":
        return f"{amount / 1000:,.0f}"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return f"{amount / 2**30:,.0f}Gi"
    return f"{amount:,}"
