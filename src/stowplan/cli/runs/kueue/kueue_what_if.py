"""What `stowplan what-if` does where Kueue admits jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.text import Text

from stowplan.assembly.deciders import Deciders
from stowplan.batch.queue_models.kueue.reports.workload_reports import WorkloadReport
from stowplan.cli.options import TREES
from stowplan.cli.runs.cluster_source import ClusterSource, read_cluster_source
from stowplan.cli.tables.console import plain_table, print_names, print_tree, stdout_console
from stowplan.inputs.cluster_reader import Cluster, read_workload
from stowplan.inputs.files import STDIN
from stowplan.insight.what_if.requested_changes import RequestedChange
from stowplan.simulation.kueue.job_admission import check_admission
from stowplan.simulation.kueue.quota_changes import (
    KueueWhatIf,
    asks_quota,
    kueue_what_if,
    with_submitted,
)


def run_kueue_what_if(
    source: ClusterSource, deciders: Deciders, changes: Sequence[RequestedChange], output: str
) -> int:
    """Print which workloads would fare differently; 0. Raises usage errors and InputError."""
    if source.record_file is not None:
        raise click.UsageError("Kueue does not decide about recordings: they have no workloads")
    assert deciders.kueue is not None, "Kueue is not configured"
    before = after = read_cluster_source(source, deciders)
    check_admission(before)
    files = tuple(one.text for one in changes if one.kind == "submit")
    if files and source.is_live:
        wanted = read_workload(files, before, validate=source.validate or "auto")
        if not asks_quota(wanted):
            text = "no jobs with a queue of Kueue: name a file for the scheduler's answer"
            raise click.UsageError(f"--submit {', '.join(files)}: {text}")
        after = with_submitted(before, wanted)
    elif files:
        more = source._replace(paths=(*source.paths, *files))
        after = read_cluster_source(more, deciders)
    found = kueue_what_if(before, after, changes, deciders.kueue)
    if output in TREES:
        print_tree(found, output)
    elif output == "name":
        print_names("workload", [one.job.rpartition("/")[2] for one in found.workloads])
    else:
        _print(found, stdout_console())
    return 0


def submits_queued_jobs(changes: Iterable[RequestedChange], validate: str) -> bool:
    """Whether submitted files have jobs with a queue of Kueue; standard input, which is read once,
    is taken to have. Raises InputError."""
    files = [one.text for one in changes if one.kind == "submit"]
    if STDIN in files:
        return True
    empty = Cluster(nodes=[], pods=[])
    return asks_quota(read_workload(files, empty, validate=validate))


def _print(found: KueueWhatIf, console: Console) -> None:
    for change in found.changes:
        console.print(Text(f"Change: {change}"), soft_wrap=True)
    (before, after), (waiting, left) = found.admitted, found.pending
    text = f"Admitted workloads: {before} before, {after} after; pending: {waiting}, {left}"
    console.print(Text(text, style="bold"))
    if not found.workloads:
        console.print("No workload fares differently.")
        return
    table = plain_table("", "NAMESPACE", "JOB", "BEFORE", "AFTER")
    for one in found.workloads:
        table.add_row(*map(Text, (one.namespace, one.job, _fate(one.before), _fate(one.after))))
    console.print(table)
    for one in found.workloads:
        if one.after is not None and one.after.status == "Pending":
            console.print(Text(f"{one.job} in {one.namespace}: {waits(one.after)}"), soft_wrap=True)


def waits(one: WorkloadReport) -> str:
    """Where a workload stands, and the quota that it lacks."""
    place = [f"position {one.position} in the queue"] if one.position else []
    short = [f"short: {shortage.text}" for shortage in one.shortages]
    return "; ".join([*place, *short]) or f"{one.reason}: {one.message}"


def _fate(one: WorkloadReport | None) -> str:
    if one is None:
        return "-"
    if one.reason:
        return f"{one.status} ({one.reason})"
    flavors = dict.fromkeys(name for held in one.flavors.values() for name in held.values())
    return f"{one.status} in {', '.join(flavors)}"
