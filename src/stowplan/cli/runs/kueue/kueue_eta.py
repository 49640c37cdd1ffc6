"""What `stowplan eta` does where Kueue admits jobs."""

from __future__ import annotations

from datetime import UTC, datetime

import click
from rich.console import Console
from rich.text import Text

from stowplan.apis.machinery.timestamps import human_duration
from stowplan.assembly.deciders import Deciders
from stowplan.cli.errors import CommandError, guess, reported
from stowplan.cli.options import TREES
from stowplan.cli.runs.cluster_source import (
    DEFAULT_NAMESPACE,
    ClusterSource,
    read_cluster_source,
)
from stowplan.cli.runs.forecasts.eta_request import EtaRequest
from stowplan.cli.runs.kueue.kueue_what_if import waits
from stowplan.cli.tables.console import plain_table, print_names, print_tree, stdout_console
from stowplan.driver.client.credentials import CredentialError
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.client.kueue_listing import list_kueue_cluster
from stowplan.driver.client.one_shot_requests import ServerUnreachable
from stowplan.driver.gc_settings import paused_collector
from stowplan.forecast.kueue_starts import KueueStarts, WorkloadStart, kueue_starts
from stowplan.inputs.cluster_reader import Cluster, read_objects
from stowplan.simulation.kueue.job_admission import check_admission

_COLUMNS = ("NAMESPACE", "NAME", "QUEUE", "CREATED", "WAITS", "ADMITTED", "STARTED", "FINISHED")


def run_kueue_eta(request: EtaRequest, deciders: Deciders, output: str) -> int:
    """Print when workloads are admitted; 1 if one is not. Raises usage errors and InputError."""
    source = request.source
    if source.record_file is not None:
        raise click.UsageError("Kueue does not decide about recordings: they have no workloads")
    if request.arrivals_s is not None or request.autoscale is not None or request.calibrate:
        raise click.UsageError("with Kueue: --arrivals, --autoscale and --calibrate do not apply")
    cluster = _list_live(source) if source.is_live else None
    cluster = cluster or read_cluster_source(source, deciders, keep_manifests=True)
    check_admission(cluster)
    now = request.now
    if now is None and source.is_live:
        now = datetime.now(UTC)
    now_s = None if now is None else now.timestamp()
    with paused_collector():
        found = kueue_starts(cluster, deciders, request.seed, request.horizon_s, now_s)
    asked = [one for one in found.workloads if _is_asked(one, request)]
    if not asked and request.target is not None:
        known = ", ".join(one.job for one in found.workloads[:10]) or "none"
        close = guess(_titled(request.target), [one.job for one in found.workloads])
        text = f'"{request.target}" not found among the workloads: {known}'
        raise CommandError(text + close)
    if output in TREES:
        print_tree(KueueStarts(workloads=asked, assumptions=found.assumptions), output)
    elif output == "name":
        print_names("workload", [one.job.rpartition("/")[2] for one in asked])
    else:
        since = "Times since the first object of the input, or since a dump was taken"
        if now is not None:
            since = f"Times since {now:%Y-%m-%dT%H:%M:%SZ}"
        _print(asked, found.assumptions, since, stdout_console())
    return 1 if any(one.admitted_s is None for one in asked) else 0


def _list_live(source: ClusterSource) -> Cluster:
    """A live cluster as a dump has it; raises CommandError."""
    with reported(ServerUnreachable, CredentialError):
        client_config = load_client_config(source.kubeconfig, source.context)
        listing = list_kueue_cluster(client_config)
    if listing.refused:
        click.echo(f"Note: {listing.refused}", err=True)
    return read_objects(
        listing.trees, client_config.server, orphans=source.orphans, keep_manifests=True
    )


def _is_asked(one: WorkloadStart, request: EtaRequest) -> bool:
    if request.target is None:
        return request.namespace in (None, one.namespace)
    namespace = request.namespace or request.source.namespace or DEFAULT_NAMESPACE
    return (one.namespace, one.job) == (namespace, _titled(request.target))


def _titled(target: str) -> str:
    """A job as reports name it."""
    return (target if "/" in target else f"job/{target}").replace("jobs/", "job/")


def _print(
    asked: list[WorkloadStart], assumptions: tuple[str, ...], since: str, console: Console
) -> None:
    table = plain_table("", *_COLUMNS)
    for one in asked:
        times = one.created_s, one.wait_s, one.admitted_s, one.started_s, one.finished_s
        cells = one.namespace, one.job, one.cluster_queue, *map(_duration, times)
        table.add_row(*map(Text, cells))
    console.print(table)
    for one in asked:
        if one.now is not None:
            text = f"{one.job} in {one.namespace} waits now: {waits(one.now)}"
            console.print(Text(text), soft_wrap=True)
        if one.reason:
            text = f"{one.job} in {one.namespace}: {one.reason}: {one.message}"
            console.print(Text(text), soft_wrap=True)
    console.print(f"{since}. Assumed:")
    for text in assumptions:
        console.print(Text(f"- {text}"), soft_wrap=True)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return human_duration(seconds) if seconds >= 0 else f"-{human_duration(-seconds)}"
