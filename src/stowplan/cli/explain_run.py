"""What `stowplan explain` does: find the pod, have it explained, print that."""

from __future__ import annotations

from typing import NamedTuple

import click
import msgspec

from stowplan.assembly.deciders import Deciders
from stowplan.cli.explain_group import explain_group, group_key, names_a_group
from stowplan.cli.explain_table import print_explanation
from stowplan.cli.jobs_table import print_job_explanation
from stowplan.cli.pod_argument import DEFAULT_NAMESPACE, pod_named
from stowplan.cli.queues import by_default
from stowplan.cli.reading import Source, cluster_of, is_live
from stowplan.cli.screen import screen
from stowplan.objects.pod import Pod
from stowplan.sim.explain import explain
from stowplan.sim.explain_job import explain_job


class Asked(NamedTuple):
    """What the command line says. namespace: None for any."""

    pod: str
    source: Source
    profile: str | None
    namespace: str | None
    after_simulation: bool
    plugin_files: tuple[str, ...] = ()
    compat: str = ""


def explained(asked: Asked, deciders: Deciders, output: str) -> int:
    """Print the explanation; the exit code."""
    reads = deciders
    if deciders.batch is None and names_a_group(asked.pod):
        # What is listed of a live cluster is what these read.
        reads = by_default(asked.plugin_files, asked.compat)
    cluster = cluster_of(asked.source, reads, notes=True)
    group = group_key(asked.pod, asked.namespace or DEFAULT_NAMESPACE, cluster)
    if group:
        return explain_group(group, cluster, deciders, output, asked.plugin_files, asked.compat)
    pod = pod_named(asked.pod, asked.namespace, cluster)
    profile = asked.profile
    if is_live(asked.source):
        profile = _profile_of(pod, deciders, profile)
    if _is_for_sessions(deciders, profile or pod.spec.scheduler_name):
        if asked.after_simulation:
            raise click.UsageError(f"--after-simulation: pod {pod.key} is decided by sessions.")
        told = explain_job(pod.key, cluster, config=deciders)
        if output == "json":
            _print_json(told)
        else:
            print_job_explanation(told, screen())
        return 0 if told.is_placed else 1
    explanation = explain(
        pod.key,
        cluster,
        config=deciders,
        profile=profile,
        after_simulation=asked.after_simulation,
    )
    if output == "json":
        _print_json(explanation)
    else:
        print_explanation(explanation, screen())
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


def _is_for_sessions(deciders: Deciders, scheduler: str) -> bool:
    """True where a pod of this scheduler is decided by sessions, or by nothing else."""
    batch = deciders.batch
    if batch is None:
        return False
    return scheduler in batch.scheduler_names or not deciders.configuration.profiles


def _print_json(told: msgspec.Struct) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(told), indent=2))
