"""What `stowplan preempt-preview` does: find the pods, preview, print who goes."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import click

from stowplan.cli.options import TREES
from stowplan.cli.runs.cluster_source import ClusterSource
from stowplan.cli.runs.explain_pod_group import is_pod_group_argument, pod_group_key
from stowplan.cli.runs.forecasts.asked_cluster import read_asked_cluster
from stowplan.cli.runs.pod_argument import find_pod_argument
from stowplan.cli.runs.scheduler_config import read_asked_deciders
from stowplan.cli.tables.console import print_names, print_tree, stdout_console
from stowplan.cli.tables.what_if import print_preview
from stowplan.driver.gc_settings import paused_collector
from stowplan.forecast.what_if.preempt_preview import preview
from stowplan.forecast.what_if.questions import WhatIfOptions, question_of
from stowplan.framework.feature_gates import FeatureGates


class PreviewRequest(NamedTuple):
    """The options of the command, by their names."""

    source: ClusterSource
    pod: str | None
    submit_files: tuple[str, ...]
    config_files: tuple[str, ...]
    profile: str | None
    plugin_files: tuple[str, ...]
    feature_gates: FeatureGates | None
    namespace: str | None
    now: datetime | None
    output: str


def run_preempt_preview(request: PreviewRequest) -> int:
    """Print the preview; 1 if a pod that was asked about stays without a node."""
    source, argument = request.source, request.pod
    submitted = request.submit_files
    if argument is not None and not submitted and source.is_given and _is_manifest(argument):
        submitted = (argument,)
        argument = None
    elif submitted and argument is not None and not source.is_live:
        # The first argument is a file of the cluster: there is no POD before it.
        source, argument = source._replace(paths=(argument, *source.paths)), None
    if bool(argument) == bool(submitted):
        raise click.UsageError("POD is required, or --submit FILE")
    deciders = read_asked_deciders(
        source,
        request.config_files,
        request.plugin_files,
        gates=request.feature_gates,
    )
    cluster, now = read_asked_cluster(source, deciders, request.now)
    namespace = request.namespace or source.namespace
    key, group = "", ""
    if argument is not None and is_pod_group_argument(argument):
        group = pod_group_key(argument, namespace or "default", cluster)
    elif argument is not None:
        key = find_pod_argument(argument, namespace, cluster).key
    options = WhatIfOptions(namespace=namespace, profile=request.profile, now=now)
    with paused_collector():
        question = question_of(cluster, config=deciders, options=options)
        found = preview(question, key, submitted, group=group)
    if request.output in TREES:
        print_tree(found, request.output)
    elif request.output == "name":
        victims = (victim.pod for step in found.steps for victim in step.victims)
        print_names("pod", [key.rpartition("/")[2] for key in victims])
    else:
        print_preview(found, stdout_console(), wide=request.output == "wide")
    return 0 if all(one.node for one in found.pods) else 1


def _is_manifest(argument: str) -> bool:
    """True where POD names a file of manifests that is there."""
    return argument.endswith((".yaml", ".yml", ".json")) and Path(argument).is_file()
