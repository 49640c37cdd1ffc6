"""What `stowplan eta` does where Kueue admits jobs."""

from __future__ import annotations

import click
from rich.console import Console
from rich.text import Text

from stowplan.apis.machinery.timestamps import human_duration
from stowplan.assembly.deciders import Deciders
from stowplan.cli.errors import CommandError
from stowplan.cli.options import TREES
from stowplan.cli.runs.cluster_source import DEFAULT_NAMESPACE, read_cluster_source
from stowplan.cli.runs.forecasts.eta_request import EtaRequest
from stowplan.cli.tables.console import plain_table, print_names, print_tree, stdout_console
from stowplan.driver.gc_settings import paused_collector
from stowplan.forecast.kueue_starts import KueueStarts, WorkloadStart, kueue_starts
from stowplan.simulation.kueue.job_admission import check_admission

_COLUMNS = ("NAMESPACE", "NAME", "QUEUE", "CREATED", "WAITS", "ADMITTED", "STARTED", "FINISHED")


def run_kueue_eta(request: EtaRequest, deciders: Deciders, output: str) -> int:
    """Print when workloads are admitted; 1 if one is not. Raises usage errors and InputError."""
    source = request.source
    if source.is_live or source.record_file is not None:
        raise click.UsageError("with Kueue: give the cluster as files (kubectl get ... -o yaml)")
    if request.arrivals_s is not None or request.autoscale is not None or request.calibrate:
        raise click.UsageError("with Kueue: --arrivals, --autoscale and --calibrate do not apply")
    cluster = read_cluster_source(source, deciders, keep_manifests=True)
    check_admission(cluster)
    with paused_collector():
        found = kueue_starts(cluster, deciders, request.seed, request.horizon_s)
    asked = [one for one in found.workloads if _is_asked(one, request)]
    if not asked and request.target is not None:
        known = ", ".join(one.job for one in found.workloads[:10]) or "none"
        raise CommandError(f'"{request.target}" not found among the workloads: {known}')
    if output in TREES:
        print_tree(KueueStarts(workloads=asked), output)
    elif output == "name":
        print_names("workload", [one.job.rpartition("/")[2] for one in asked])
    else:
        _print(asked, found.assumptions, stdout_console())
    return 1 if any(one.admitted_s is None for one in asked) else 0


def _is_asked(one: WorkloadStart, request: EtaRequest) -> bool:
    if request.target is None:
        return request.namespace in (None, one.namespace)
    wanted = request.target if "/" in request.target else f"job/{request.target}"
    namespace = request.namespace or request.source.namespace or DEFAULT_NAMESPACE
    return (one.namespace, one.job) == (namespace, wanted.replace("jobs/", "job/"))


def _print(asked: list[WorkloadStart], assumptions: tuple[str, ...], console: Console) -> None:
    table = plain_table("", *_COLUMNS)
    for one in asked:
        times = one.created_s, one.wait_s, one.admitted_s, one.started_s, one.finished_s
        cells = one.namespace, one.job, one.cluster_queue, *map(_duration, times)
        table.add_row(*map(Text, cells))
    console.print(table)
    for one in asked:
        if one.reason:
            text = f"{one.job} in {one.namespace}: {one.reason}: {one.message}"
            console.print(Text(text), soft_wrap=True)
    console.print("Times since the first object of the input, or since a dump was taken. Assumed:")
    for text in assumptions:
        console.print(Text(f"- {text}"), soft_wrap=True)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return human_duration(seconds) if seconds >= 0 else f"-{human_duration(-seconds)}"
