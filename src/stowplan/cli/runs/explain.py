"""What `stowplan explain` does: find the pod or gang, explain it, print the explanation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import click

from stowplan.assembly.deciders import Deciders
from stowplan.cli.options import TREES
from stowplan.cli.runs.cluster_source import ClusterSource, read_cluster_source
from stowplan.cli.runs.explain_pod_group import (
    has_pod_group,
    is_pod_group_argument,
    pod_group_key,
    run_explain_pod_group,
)
from stowplan.cli.runs.pod_argument import find_pod_argument
from stowplan.cli.runs.scheduler_config import default_session_deciders, without_kueue
from stowplan.cli.tables.changes import print_causes, print_changes
from stowplan.cli.tables.console import print_names, print_tree, stdout_console
from stowplan.cli.tables.explanations import print_explanation
from stowplan.cli.tables.jobs import print_job_explanation
from stowplan.cycle.change import PodChanges
from stowplan.driver.gc_settings import paused_collector
from stowplan.forecast.explain import explain, explain_changes
from stowplan.forecast.explain_job import explain_job
from stowplan.forecast.explain_pending import explain_pending
from stowplan.forecast.start_times.groups_without_pods import waiting_groups
from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_owners import OWNER_KINDS
from stowplan.objects.pod import Pod


class ExplainRequest(NamedTuple):
    """The options of the command, by their names. namespace: None for the default one. changes:
    True for nothing else, None for beside the explanation."""

    pod: str | None
    source: ClusterSource
    profile: str | None
    namespace: str | None
    all_namespaces: bool
    after_simulation: bool
    changes: bool | None
    all_pending: bool
    from_events: bool
    plugin_files: tuple[str, ...]
    compat: tuple[str, ...]


def run_explain(request: ExplainRequest, deciders: Deciders, output: str) -> int:
    """Print the explanation; the exit code."""
    if request.all_pending or request.from_events:
        if deciders.kueue is not None and not request.source.is_live:
            raise click.UsageError("with Kueue: name a job, as in job/NAME")
        # Jobs of a live cluster that wait for Kueue have no pods, or gated ones.
        return _run_pending(request, without_kueue(deciders), output)
    if request.pod is None:
        raise click.UsageError("POD is required")
    if request.changes and request.after_simulation:
        raise click.UsageError("--changes cannot be used with --after-simulation")
    if deciders.kueue is None or request.profile is not None:
        return _run_pod(request, request.pod, without_kueue(deciders), output)
    namespace = request.namespace
    # Imported here: most clusters have nothing of Kueue.
    from stowplan.cli.runs.kueue.kueue_reports import run_kueue_explain

    source, changes = request.source, request.changes is not False
    answer = run_kueue_explain(request.pod, namespace, source, deciders, output, changes=changes)
    if not answer.asks_scheduler:
        return answer.code
    return _run_pod(request, request.pod, without_kueue(deciders), output, answer.cluster)


def _run_pending(request: ExplainRequest, deciders: Deciders, output: str) -> int:
    """Print all pending pods by cause; 1 if there are any, or jobs that wait without pods."""
    source = request.source
    if request.pod is not None:
        if source.is_live:
            raise click.UsageError("--all-pending and --from-events take no POD")
        # The first argument is a file: there is no POD before it.
        source = source._replace(paths=(request.pod, *source.paths))
    keeps = request.from_events and not source.is_live
    cluster = read_cluster_source(source, deciders, notes=True, keep_manifests=keeps)
    namespace = None if request.all_namespaces else request.namespace
    now = datetime.now(UTC) if source.is_live else None
    groups = [
        one for one in waiting_groups(cluster, deciders, now) if namespace in (None, one.namespace)
    ]
    with paused_collector():
        causes = explain_pending(
            cluster,
            config=deciders,
            profile=request.profile,
            namespace=namespace,
            from_events=request.from_events,
            changes=request.changes is not False,
            now=now,
        )
    for one in groups:
        click.echo(f"Note: {one.text}", err=True)
    if output in TREES:
        print_tree(causes, output)
    elif output == "name":
        print_names("pod", [key.rpartition("/")[2] for one in causes.causes for key in one.pods])
    else:
        print_causes(causes, stdout_console(), wide=output == "wide")
    return 1 if causes.pending or groups else 0


def _run_changes(pod: Pod, cluster: Cluster, deciders: Deciders, profile: str | None) -> PodChanges:
    with paused_collector():
        return explain_changes(pod.key, cluster, config=deciders, profile=profile)


def _print_changes(found: PodChanges, output: str) -> int:
    """Print changes and nothing else; 1 if there are none."""
    if output in TREES:
        print_tree(found, output)
    elif output != "name":
        print_changes(found, stdout_console())
    return 0 if found.changes else 1


def _run_pod(
    request: ExplainRequest,
    argument: str,
    deciders: Deciders,
    output: str,
    cluster: Cluster | None = None,
) -> int:
    """Explain a pod or a PodGroup; the exit code. cluster: where it is read already."""
    reads = deciders
    native = deciders.gates.generic_workload
    if deciders.batch is None and is_pod_group_argument(argument) and not native:
        # Of a live cluster only the kinds that these read are listed.
        reads = default_session_deciders(request.plugin_files, request.compat)
    namespace = request.namespace or request.source.namespace
    resource, slash, name = argument.partition("/")
    is_cron_job = slash and OWNER_KINDS.get(resource) == "CronJob"
    next_run = f"{'' if request.all_namespaces else namespace}/{name}" if is_cron_job else ""
    if cluster is None:
        cluster = read_cluster_source(request.source, reads, notes=True, next_run=next_run)
    now = datetime.now(UTC) if request.source.is_live else None
    group = pod_group_key(argument, namespace, cluster)
    if group:
        if reads is not deciders and request.source.is_live and not has_pod_group(group, cluster):
            # Imported here: few clusters have such queues.
            from stowplan.cli.runs.queue_models.unread_queues import report_unread_queues

            report_unread_queues(request.source, cluster, reads, is_empty=True)
        return run_explain_pod_group(
            group,
            cluster,
            deciders,
            output,
            request.plugin_files,
            request.compat,
            changes=request.changes,
            now=now,
        )
    pod = find_pod_argument(argument, None if request.all_namespaces else namespace, cluster)
    profile = request.profile
    if request.source.is_live:
        profile = _profile_of(pod, deciders, profile)
    if output == "name":
        print_names("pod", [pod.name])
    if _is_session_scheduler(deciders, profile or pod.spec.scheduler_name):
        return _run_session_pod(request, pod, cluster, deciders, output)
    if request.changes:
        return _print_changes(_run_changes(pod, cluster, deciders, profile), output)
    with paused_collector():
        explanation = explain(
            pod.key,
            cluster,
            config=deciders,
            profile=profile,
            after_simulation=request.after_simulation,
            changes=request.changes is None,
        )
    if output in TREES:
        print_tree(explanation, output)
    elif output != "name":
        print_explanation(explanation, stdout_console(), wide=output == "wide")
    return 0 if explanation.node else 1


def _run_session_pod(
    request: ExplainRequest, pod: Pod, cluster: Cluster, deciders: Deciders, output: str
) -> int:
    """Explain a pod by a session; the exit code."""
    if request.after_simulation:
        raise click.UsageError(
            f"--after-simulation cannot be used with pod {pod.key}: sessions schedule it"
        )
    now = datetime.now(UTC) if request.source.is_live else None
    explanation = explain_job(
        pod.key, cluster, config=deciders, changes=request.changes is not False, now=now
    )
    if request.changes:
        found = PodChanges(pod.key, explanation.changes, explanation.not_searched)
        return _print_changes(found, output)
    if output in TREES:
        print_tree(explanation, output)
    elif output != "name":
        print_job_explanation(explanation, stdout_console(), wide=output == "wide")
        native_group = group_key_of(pod)
        if native_group and explanation.state != "unseen":
            click.echo(f"Note: sessions schedule it without PodGroup {native_group}")
    return 0 if explanation.is_placed else 1


def _profile_of(pod: Pod, deciders: Deciders, profile: str | None) -> str | None:
    """The profile for a pod of a live cluster: the only one where the pod's scheduler is not among
    them."""
    profiles = deciders.configuration.profiles
    if profile or pod.spec.scheduler_name in profiles:
        return profile
    if len(profiles) != 1 or deciders.batch is not None:
        return profile
    return next(iter(profiles))


def _is_session_scheduler(deciders: Deciders, scheduler: str) -> bool:
    """True if sessions schedule the pods of this scheduler name, or all pods."""
    batch = deciders.batch
    if batch is None:
        return False
    return scheduler in batch.scheduler_names or not deciders.configuration.profiles
