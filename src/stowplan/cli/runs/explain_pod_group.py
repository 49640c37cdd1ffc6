"""`stowplan explain podgroup/NAME`: what one session makes of a PodGroup."""

from __future__ import annotations

import click
import msgspec

from stowplan.assembly.deciders import Deciders
from stowplan.cli.commands.queues import default_session_deciders
from stowplan.cli.tables.console import stdout_console
from stowplan.cli.tables.jobs import print_job_explanation
from stowplan.forecast.explain_job import explain_pod_group
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.gang_notes import LOAD_SESSIONS
from stowplan.objects.podgroup import PodGroup

KINDS = ("podgroup", "podgroups", "pg")
"""What may stand before the name, as kubectl takes it."""
NOT_LOADED = f"{LOAD_SESSIONS}; kube-batch's default configuration decides here"


def is_pod_group_argument(argument: str) -> bool:
    """True for `podgroup/NAME` and `pg/NAME`."""
    return argument.partition("/")[0] in KINDS


def pod_group_key(argument: str, namespace: str, cluster: Cluster) -> str:
    """The PodGroup, by `NAMESPACE/NAME`, that an argument means, "" where it means a pod: a plain
    name means a PodGroup where there is no pod and a PodGroup of that name."""
    if is_pod_group_argument(argument):
        name = argument.partition("/")[2]
        return name if "/" in name else f"{namespace}/{name}"
    key = argument if "/" in argument else f"{namespace}/{argument}"
    if any(pod.key == key for pod in cluster.pods):
        return ""
    groups = (value for value in cluster.objects if isinstance(value, PodGroup))
    return key if any(group.key == key for group in groups) else ""


def run_explain_pod_group(
    key: str,
    cluster: Cluster,
    deciders: Deciders,
    output: str,
    plugin_files: tuple[str, ...] = (),
    compat: str = "",
) -> int:
    """Print what a session makes of a PodGroup; the exit code. Without sessions in the
    configuration kube-batch's default decides, and that is said."""
    is_loaded = deciders.batch is not None
    used = deciders if is_loaded else default_session_deciders(plugin_files, compat)
    told = explain_pod_group(key, cluster, config=used)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(told), indent=2))
    else:
        print_job_explanation(told, stdout_console())
    if not is_loaded:
        click.echo(f"Note: {NOT_LOADED}", err=output == "json")
    return 0 if told.is_placed else 1
