"""`stowplan explain podgroup/NAME`: the result of one session for a PodGroup."""

from __future__ import annotations

from datetime import datetime

import click

from stowplan.assembly.deciders import Deciders
from stowplan.cli.options import TREES
from stowplan.cli.runs.scheduler_config import default_session_deciders
from stowplan.cli.tables.changes import print_changes
from stowplan.cli.tables.console import print_names, print_tree, stdout_console
from stowplan.cli.tables.jobs import print_job_explanation
from stowplan.cli.tables.scheduling_groups import print_scheduling_group
from stowplan.config.queue_models.queue_model_choice import KAI_SCHEDULER
from stowplan.config.queue_models.scheduler_hints import no_sessions
from stowplan.cycle.change import PodChanges
from stowplan.forecast.explain_job import explain_pod_group
from stowplan.forecast.explain_scheduling_group import (
    explain_scheduling_group,
    find_scheduling_group,
)
from stowplan.framework.deciders.tasks import group_of
from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_owners import OWNER_KINDS, POD_GROUP_NAMES, groups_of_owner
from stowplan.objects.kai.kai_kinds import KaiPodGroupObject
from stowplan.objects.podgroup import PodGroup
from stowplan.objects.scheduling_group import SchedulingGroup


def is_pod_group_argument(argument: str) -> bool:
    """True for `podgroup/NAME` and `pg/NAME`."""
    return argument.partition("/")[0].lower() in POD_GROUP_NAMES


def pod_group_key(argument: str, namespace: str, cluster: Cluster) -> str:
    """NAMESPACE/NAME of the PodGroup that an argument names, "" where it names a pod.

    A plain name is a PodGroup where there is no pod, and a PodGroup, of that name. A job without
    pods is its PodGroup: Volcano makes the pods of a Job once it is admitted.
    """
    if is_pod_group_argument(argument):
        name = argument.partition("/")[2]
        return name if "/" in name else f"{namespace}/{name}"
    key = argument if "/" in argument else f"{namespace}/{argument}"
    if any(pod.key == key for pod in cluster.pods):
        return ""
    return key if has_pod_group(key, cluster) else _group_without_pods(argument, namespace, cluster)


def _group_without_pods(argument: str, namespace: str, cluster: Cluster) -> str:
    """The PodGroup of a job that has no pods, "" for none."""
    resource, slash, name = argument.partition("/")
    if slash and resource.lower() not in OWNER_KINDS:
        return ""
    kind = OWNER_KINDS[resource.lower()] if slash else ""
    groups = groups_of_owner(cluster.objects, kind, name if slash else resource, namespace)
    used = {group_of(pod) for pod in cluster.pods}
    return next((one.key for one in groups if one.key not in used), "")


def has_pod_group(key: str, cluster: Cluster) -> bool:
    """Whether a cluster has a PodGroup of any scheduler with this key."""
    kinds = PodGroup | KaiPodGroupObject | SchedulingGroup
    return any(isinstance(one, kinds) and one.key == key for one in cluster.objects)


def is_scheduled_by_profiles(key: str, cluster: Cluster) -> bool:
    """True for a PodGroup of scheduling.k8s.io; where sessions have one of the same name, for one
    that a pod names in `spec.schedulingGroup`."""
    if find_scheduling_group(key, cluster) is None:
        return False
    others = any(isinstance(one, PodGroup) and one.key == key for one in cluster.objects)
    return not others or any(group_key_of(pod) == key for pod in cluster.pods)


def _not_loaded(key: str, cluster: Cluster) -> str:
    """Which option configures the sessions that a PodGroup is for."""
    groups = (one for one in cluster.objects if isinstance(one, KaiPodGroupObject))
    if any(group.key == key for group in groups):
        return no_sessions([KAI_SCHEDULER])
    return no_sessions({pod.spec.scheduler_name for pod in cluster.pods if group_of(pod) == key})


def _run_native(
    key: str, cluster: Cluster, deciders: Deciders, output: str, *, changes: bool | None
) -> int:
    if changes:
        raise click.UsageError("--changes cannot be used with a PodGroup of scheduling.k8s.io")
    found = explain_scheduling_group(key, cluster, config=deciders)
    if output in TREES:
        print_tree(found, output)
    elif output == "name":
        print_names("podgroup", [key.rpartition("/")[2]])
    else:
        print_scheduling_group(found, stdout_console())
    return 0 if found.is_placed else 1


def run_explain_pod_group(
    key: str,
    cluster: Cluster,
    deciders: Deciders,
    output: str,
    plugin_files: tuple[str, ...] = (),
    compat: tuple[str, ...] = (),
    changes: bool | None = None,
    now: datetime | None = None,
) -> int:
    """Print the result of a session for a PodGroup; the exit code. Without sessions in the
    configuration kube-batch's default is used, and a note says so. changes: True for the changes
    that let it start and nothing else, False for none. now: of the session."""
    if is_scheduled_by_profiles(key, cluster):
        return _run_native(key, cluster, deciders, output, changes=changes)
    is_loaded = deciders.batch is not None
    used = deciders if is_loaded else default_session_deciders(plugin_files, compat)
    explanation = explain_pod_group(
        key, cluster, config=used, changes=changes is not False, now=now
    )
    if changes and output != "name":
        found = PodChanges(key, explanation.changes, explanation.not_searched)
        if output in TREES:
            print_tree(found, output)
        else:
            print_changes(found, stdout_console())
    elif output in TREES:
        print_tree(explanation, output)
    elif output == "name":
        print_names("podgroup", [key.rpartition("/")[2]])
    else:
        print_job_explanation(explanation, stdout_console(), wide=output == "wide")
    if not is_loaded:
        note = f"{_not_loaded(key, cluster)}; kube-batch's default configuration is used here"
        click.echo(f"Note: {note}", err=output not in ("table", "wide"))
    if changes:
        return 0 if explanation.changes else 1
    return 0 if explanation.is_placed else 1
