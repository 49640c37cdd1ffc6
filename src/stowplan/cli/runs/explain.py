"""What `stowplan explain` does: find the pod, have it explained, print that."""

from __future__ import annotations

from typing import NamedTuple

import click
import msgspec

from stowplan.assembly.deciders import Deciders
from stowplan.cli.commands.queues import default_session_deciders
from stowplan.cli.runs.cluster_source import ClusterSource, is_live, read_cluster_source
from stowplan.cli.runs.explain_pod_group import (
    is_pod_group_argument,
    pod_group_key,
    run_explain_pod_group,
)
from stowplan.cli.runs.pod_argument import DEFAULT_NAMESPACE, find_pod_argument
from stowplan.cli.tables.console import stdout_console
from stowplan.cli.tables.explanations import print_explanation
from stowplan.cli.tables.jobs import print_job_explanation
from stowplan.forecast.explain import explain
from stowplan.forecast.explain_job import explain_job
from stowplan.objects.pod import Pod


class ExplainRequest(NamedTuple):
    """What the command line says. namespace: None for any."""

    pod: str
    source: ClusterSource
    profile: str | None
    namespace: str | None
    after_simulation: bool
    plugin_files: tuple[str, ...] = ()
    compat: str = ""


def run_explain(request: ExplainRequest, deciders: Deciders, output: str) -> int:
    """Print the explanation; the exit code."""
    reads = deciders
    if deciders.batch is None and is_pod_group_argument(request.pod):
        # What is listed of a live cluster is what these read.
        reads = default_session_deciders(request.plugin_files, request.compat)
    cluster = read_cluster_source(request.source, reads, notes=True)
    group = pod_group_key(request.pod, request.namespace or DEFAULT_NAMESPACE, cluster)
    if group:
        return run_explain_pod_group(
            group, cluster, deciders, output, request.plugin_files, request.compat
        )
    pod = find_pod_argument(request.pod, request.namespace, cluster)
    profile = request.profile
    if is_live(request.source):
        profile = _profile_of(pod, deciders, profile)
    if _is_session_scheduler(deciders, profile or pod.spec.scheduler_name):
        if request.after_simulation:
            raise click.UsageError(f"--after-simulation: pod {pod.key} is decided by sessions.")
        job_explanation = explain_job(pod.key, cluster, config=deciders)
        if output == "json":
            _print_json(job_explanation)
        else:
            print_job_explanation(job_explanation, stdout_console())
        return 0 if job_explanation.is_placed else 1
    explanation = explain(
        pod.key,
        cluster,
        config=deciders,
        profile=profile,
        after_simulation=request.after_simulation,
    )
    if output == "json":
        _print_json(explanation)
    else:
        print_explanation(explanation, stdout_console())
    return 0 if explanation.node else 1


def _profile_of(pod: Pod, deciders: Deciders, profile: str | None) -> str | None:
    """Whose rules judge a pod of a live cluster: where its own scheduler is not among the profiles
    and there is one only, that one."""
    profiles = deciders.configuration.profiles
    if profile or pod.spec.scheduler_name in profiles:
        return profile
    if len(profiles) != 1 or deciders.batch is not None:
        return profile
    return next(iter(profiles))


def _is_session_scheduler(deciders: Deciders, scheduler: str) -> bool:
    """True where a pod of this scheduler is decided by sessions, or by nothing else."""
    batch = deciders.batch
    if batch is None:
        return False
    return scheduler in batch.scheduler_names or not deciders.configuration.profiles


def _print_json(job_explanation: msgspec.Struct) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(job_explanation), indent=2))
