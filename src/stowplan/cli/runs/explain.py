"""What `stowplan explain` does: find the pod or gang, explain it, print the explanation."""

from __future__ import annotations

from typing import NamedTuple

import click

from stowplan.assembly.deciders import Deciders
from stowplan.cli.options import TREES
from stowplan.cli.runs.cluster_source import ClusterSource, read_cluster_source
from stowplan.cli.runs.explain_pod_group import (
    is_pod_group_argument,
    pod_group_key,
    run_explain_pod_group,
)
from stowplan.cli.runs.pod_argument import find_pod_argument
from stowplan.cli.runs.scheduler_config import default_session_deciders
from stowplan.cli.tables.console import print_names, print_tree, stdout_console
from stowplan.cli.tables.explanations import print_explanation
from stowplan.cli.tables.jobs import print_job_explanation
from stowplan.forecast.explain import explain
from stowplan.forecast.explain_job import explain_job
from stowplan.objects.pod import Pod


class ExplainRequest(NamedTuple):
    """The options of the command, by their names. namespace: None for the default one."""

    pod: str
    source: ClusterSource
    profile: str | None
    namespace: str | None
    all_namespaces: bool
    after_simulation: bool
    plugin_files: tuple[str, ...]
    compat: str | None


def run_explain(request: ExplainRequest, deciders: Deciders, output: str) -> int:
    """Print the explanation; the exit code."""
    reads = deciders
    if deciders.batch is None and is_pod_group_argument(request.pod):
        # Of a live cluster only the kinds that these read are listed.
        reads = default_session_deciders(request.plugin_files, request.compat or "")
    namespace = request.namespace or request.source.namespace
    cluster = read_cluster_source(request.source, reads, notes=True)
    group = pod_group_key(request.pod, namespace, cluster)
    if group:
        return run_explain_pod_group(
            group, cluster, deciders, output, request.plugin_files, request.compat or ""
        )
    pod = find_pod_argument(request.pod, None if request.all_namespaces else namespace, cluster)
    profile = request.profile
    if request.source.is_live:
        profile = _profile_of(pod, deciders, profile)
    if output == "name":
        print_names("pod", [pod.name])
    if _is_session_scheduler(deciders, profile or pod.spec.scheduler_name):
        if request.after_simulation:
            raise click.UsageError(
                f"--after-simulation cannot be used with pod {pod.key}: sessions schedule it"
            )
        job_explanation = explain_job(pod.key, cluster, config=deciders)
        if output in TREES:
            print_tree(job_explanation, output)
        elif output != "name":
            print_job_explanation(job_explanation, stdout_console(), wide=output == "wide")
        return 0 if job_explanation.is_placed else 1
    explanation = explain(
        pod.key,
        cluster,
        config=deciders,
        profile=profile,
        after_simulation=request.after_simulation,
    )
    if output in TREES:
        print_tree(explanation, output)
    elif output != "name":
        print_explanation(explanation, stdout_console(), wide=output == "wide")
    return 0 if explanation.node else 1


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
