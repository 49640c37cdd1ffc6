"""What `stowplan capacity` does where Kueue admits jobs."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console
from rich.text import Text

from stowplan.assembly.deciders import Deciders
from stowplan.cli.options import TREES
from stowplan.cli.runs.cluster_source import ClusterSource
from stowplan.cli.runs.kueue.kueue_reports import read_queued_cluster
from stowplan.cli.tables.console import plain_table, print_tree, stdout_console
from stowplan.inputs.cluster_reader import read_workload
from stowplan.simulation.kueue.job_capacity import LIMIT, KueueCapacity, job_capacity

_COLUMNS = ("NAMESPACE", "JOB", "QUEUE", "MORE", "PODS", "FLAVORS", "PREEMPTS")


def run_kueue_capacity(
    files: Sequence[str],
    source: ClusterSource,
    deciders: Deciders,
    output: str,
    limit: int | None,
) -> int:
    """Print how many more of the jobs of files are admitted; 1 if none is. Raises usage errors and
    InputError."""
    assert deciders.kueue is not None, "Kueue is not configured"
    cluster = read_queued_cluster(source, deciders)
    wanted = read_workload(list(files), cluster, validate=source.validate or "auto")
    found = job_capacity(wanted, cluster, deciders.kueue, limit or LIMIT)
    if output in TREES:
        print_tree(found, output)
    else:
        _print(found, stdout_console())
    return 0 if any(one.count for one in found.jobs) else 1


def check_options(options: dict[str, object]) -> None:
    """Raise a usage error for an option that has no meaning for Kueue. options: name -> value."""
    given = [name for name, value in options.items() if value]
    if given:
        raise click.UsageError(f"with Kueue: {', '.join(given)} do not apply: name a FILE of jobs")


def _print(found: KueueCapacity, console: Console) -> None:
    table = plain_table("", *_COLUMNS, right=("MORE", "PODS"))
    for one in found.jobs:
        count = f"{one.count:,}{' or more' if one.is_limited else ''}"
        flavors = ", ".join(f"{name}: {n:,}" for name, n in one.flavors.items()) or "-"
        cells = (one.namespace, one.job, one.cluster_queue or "-", count, f"{one.pods:,}", flavors)
        table.add_row(*map(Text, (*cells, ", ".join(one.preempted) or "-")))
    console.print(table)
    for one in found.jobs:
        lines = [f"No more of {one.job}: {one.reason}: {one.message}"] if one.reason else []
        lines += [f"Short: {shortage.text}" for shortage in one.shortages]
        lines += [f"Would admit one more: {text}" for text in one.admitted_by]
        if one.position > 1:
            lines.append(f"Position in the queue: {one.position}")
        for line in lines:
            console.print(Text(line), soft_wrap=True)
    for note in found.notes:
        console.print(Text(f"Note: {note}", style="dim"), soft_wrap=True)
