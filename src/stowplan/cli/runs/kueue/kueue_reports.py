"""What `stowplan queues` and `stowplan explain` say where Kueue decides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import click
import msgspec
from rich.console import Console
from rich.text import Text

from stowplan.assembly.deciders import Deciders
from stowplan.batch.queue_models.kueue.reports.quota_reports import CLUSTER_QUEUE, COHORT
from stowplan.batch.queue_models.kueue.reports.workload_reports import KueueReport, WorkloadReport
from stowplan.cli.errors import CommandError, guess
from stowplan.cli.options import TREES
from stowplan.cli.runs.cluster_source import (
    DEFAULT_NAMESPACE,
    ClusterSource,
    read_cluster_source,
)
from stowplan.cli.runs.pod_argument import names_pods
from stowplan.cli.tables.console import plain_table, print_names, print_tree, stdout_console
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_owners import job_titles
from stowplan.simulation.kueue.admitting_changes import admitting_changes
from stowplan.simulation.kueue.finished_workloads import finished_workloads
from stowplan.simulation.kueue.job_admission import admit_jobs, check_admission

ADMITTED, FINISHED = "Admitted", "Finished"
_PODS = ("pod/", "pods/")
_AMOUNTS = ("NOMINAL", "MAY BORROW", "MAY LEND", "USED", "BORROWED", "LENT", "AVAILABLE")


def read_queued_cluster(source: ClusterSource, deciders: Deciders) -> Cluster:
    """A cluster with objects of Kueue; raises usage errors and InputError."""
    if source.record_file is not None:
        raise click.UsageError("Kueue does not decide about recordings: they have no workloads")
    cluster = read_cluster_source(source, deciders)
    check_admission(cluster)
    return cluster


def _report(cluster: Cluster, deciders: Deciders) -> KueueReport:
    """The admission of a cluster; raises InputError."""
    assert deciders.kueue is not None, "Kueue is not configured"
    report = admit_jobs(cluster, deciders.kueue).report
    assert report is not None, "admitting reports"
    return report


def run_kueue_queues(source: ClusterSource, deciders: Deciders, output: str) -> None:
    """Print quota and workloads of the queues."""
    report = _report(read_queued_cluster(source, deciders), deciders)
    if output in TREES:
        print_tree(report, output)
    elif output == "name":
        print_names(
            "clusterqueue", (one.name for one in report.queues if one.kind == CLUSTER_QUEUE)
        )
    else:
        _print_queues(report, stdout_console())


class KueueAnswer(NamedTuple):
    """What Kueue says about a name. code: the exit code. cluster: it was read from.
    asks_scheduler: whether the pod that was named is left to the scheduler."""

    code: int
    cluster: Cluster
    asks_scheduler: bool = False


def run_kueue_explain(
    name: str,
    namespace: str | None,
    source: ClusterSource,
    deciders: Deciders,
    output: str,
    *,
    changes: bool = True,
) -> KueueAnswer:
    """Print why a workload is admitted or not; exit code 1 if it is neither admitted nor finished.
    name: as job/NAME, or pod/NAME for the workload of a pod. changes: also what would admit it.

    Pods that ask for no quota, and those of admitted jobs, are left to the scheduler.
    """
    cluster = read_queued_cluster(source, deciders)
    report = _report(cluster, deciders)
    place = namespace or DEFAULT_NAMESPACE
    job = _job_of(name, place, cluster, report)
    found = _workload(job, place, report.workloads)
    if found is None and not name.startswith(_PODS):
        found = _workload(job, place, finished_workloads(cluster))
    if found is None and names_pods(name, place, cluster):
        return KueueAnswer(0, cluster, asks_scheduler=True)
    if found is None:
        raise CommandError(_not_found(job, place, report))
    if changes and deciders.kueue is not None and found.status != FINISHED:
        made = admitting_changes(cluster, deciders.kueue, report, found)
        found = msgspec.structs.replace(found, admitted_by=[one.text for one in made])
    is_admitted = found.status == ADMITTED
    if output in TREES:
        print_tree(found, output)
    elif output == "name":
        click.echo(found.job)
    else:
        _print_workload(found, stdout_console())
        if is_admitted and name.startswith(_PODS) and names_pods(name, place, cluster):
            click.echo()
            return KueueAnswer(0, cluster, asks_scheduler=True)
    return KueueAnswer(0 if is_admitted or found.status == FINISHED else 1, cluster)


def _job_of(name: str, namespace: str, cluster: Cluster, report: KueueReport) -> str:
    """The job of a pod; other names as they are."""
    if not name.startswith(_PODS):
        return name
    key = f"{namespace}/{name.partition('/')[2]}"
    titles = {one.job for one in report.workloads if one.namespace == namespace}
    pods = (pod for pod in cluster.pods if pod.key == key)
    jobs = (title for pod in pods for title in job_titles(pod))
    return next((title for title in jobs if title in titles), name)


def _titled(name: str) -> tuple[str, str]:
    """A job as reports name it, and its plain name."""
    kind, _, plain = (name if "/" in name else f"job/{name}").partition("/")
    return f"{kind.removesuffix('s').lower()}/{plain}", plain


def _workload(
    name: str, namespace: str, workloads: Iterable[WorkloadReport]
) -> WorkloadReport | None:
    wanted, plain = _titled(name)
    for one in workloads:
        if one.namespace != namespace:
            continue
        if one.job == wanted or (wanted.startswith("workload/") and one.name == plain):
            return one
    return None


def _not_found(name: str, namespace: str, report: KueueReport) -> str:
    here = [one.job for one in report.workloads if one.namespace == namespace]
    known, wanted = ", ".join(here[:10]) or "none", _titled(name)[0]
    text = f'"{wanted}" not found among the workloads of namespace {namespace}: {known}'
    return text + guess(wanted, here)


def _print_queues(report: KueueReport, console: Console) -> None:
    columns = ("NAME", "SHARE", "ADMITTED", "PENDING", "FLAVOR", "RESOURCE", *_AMOUNTS)
    table = plain_table("", *columns, right=("SHARE", "ADMITTED", "PENDING", *_AMOUNTS))
    for queue in report.queues:
        is_cohort = queue.kind == COHORT
        counts = ["", ""] if is_cohort else [str(queue.admitted), str(queue.pending)]
        share = "inf" if queue.share < 0 else f"{queue.share:g}"
        title = f"cohort/{queue.name}" if is_cohort else queue.name
        head = ["  " * queue.depth + title, share if queue.cohort else "-", *counts]
        for one in queue.quotas:
            limits = one.borrowing_limit, one.lending_limit
            amounts = (
                one.nominal,
                *limits,
                one.used,
                one.borrowed,
                one.used_by_others,
                one.available,
            )
            table.add_row(*map(Text, [*head, one.flavor, one.resource, *amounts]))
            head = [""] * len(head)
        if not queue.quotas:
            table.add_row(*map(Text, [*head, "-", "-", *["-"] * len(_AMOUNTS)]))
    console.print(table)
    for queue in report.queues:
        if queue.problem:
            console.print(
                Text(f"ClusterQueue {queue.name} is inactive: {queue.problem}"), soft_wrap=True
            )
    for line in report.lines():
        console.print(Text(line), soft_wrap=True)


def _print_workload(one: WorkloadReport, console: Console) -> None:
    queue = one.cluster_queue or "-"
    console.print(Text(f"{one.job} in {one.namespace}: {one.status}", style="bold"))
    lines = [f"Queue: {one.local_queue}, ClusterQueue {queue}, priority {one.priority}"]
    lines.append(f"Pods: {one.pods}")
    for name, flavors in one.flavors.items():
        held = ", ".join(f"{resource} in {flavor}" for resource, flavor in flavors.items())
        lines.append(f"Pod set {name}: {one.counts[name]} pods, {held}")
    if one.reason:
        lines.append(f"Reason: {one.reason}: {one.message}")
    if one.position:
        lines.append(f"Position in the queue: {one.position}")
    if one.order_text:
        lines.append(f"Order by usage: {one.order_text}")
    lines += [f"Short: {shortage.text}" for shortage in one.shortages]
    lines += [f"Would admit it: {text}" for text in one.admitted_by]
    for line in lines:
        console.print(Text(line), soft_wrap=True)
