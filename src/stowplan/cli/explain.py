"""`stowplan explain`: why a pod is where it is, or nowhere."""

from __future__ import annotations

import sys

import click
import msgspec

from stowplan.assembly.deciders import Deciders
from stowplan.cli import live_options, options
from stowplan.cli.explain_table import print_explanation
from stowplan.cli.input_notes import read_input
from stowplan.cli.jobs_table import print_job_explanation
from stowplan.cli.screen import screen
from stowplan.sim.cluster import Cluster
from stowplan.sim.deciders import read_deciders
from stowplan.sim.explain import explain, found_pod
from stowplan.sim.explain_job import explain_job


@click.command(name="explain")
@click.argument("pod", metavar="POD")
@options.reading
@live_options.kubeconfig
@live_options.context
@options.config
@options.profile
@options.plugin
@options.compat
@click.option("-n", "--namespace", metavar="NS", default="default", show_default=True)
@options.output
def command(
    pod: str,
    clusters: tuple[str, ...],
    orphans: str,
    validate: str | None,
    kubeconfig: str | None,
    context: str,
    config_files: tuple[str, ...],
    profile: str | None,
    plugin_files: tuple[str, ...],
    compat: str | None,
    namespace: str,
    output: str,
) -> None:
    """Say, node by node, which rules refuse POD, what it needs and what there is.

    The cluster is that of files (--cluster), or a live one (--kubeconfig, --context); of that it
    lists what the rules read, and writes nothing.

    POD is a name or NAMESPACE/NAME. It is judged on the cluster as given, before other pending
    pods are placed; a placed pod as if it were to be placed now. A pod that sessions decide is
    explained by one session, with its gang and queue. Exit code 1 when no node takes it.
    """
    key = pod if "/" in pod else f"{namespace}/{pod}"
    if clusters and (kubeconfig or context):
        raise click.UsageError("--cluster and --kubeconfig: one of them.")
    deciders = read_deciders(config_files, plugin_files, compat or "")
    cluster = _live(kubeconfig, context, deciders) if kubeconfig or context else None
    if cluster is None:
        cluster = read_input(clusters, orphans, validate, notes=True)
    else:
        profile = _profile_of(key, cluster, deciders, profile)
    scheduler = profile or found_pod(key, cluster).spec.scheduler_name
    if _is_for_sessions(deciders, scheduler):
        told = explain_job(key, cluster, config=deciders)
        if output == "json":
            _print_json(told)
        else:
            print_job_explanation(told, screen())
        sys.exit(0 if told.node or told.current_node else 1)
    explanation = explain(key, cluster, config=deciders, profile=profile)
    if output == "json":
        _print_json(explanation)
    else:
        print_explanation(explanation, screen())
    sys.exit(0 if explanation.node else 1)


def _live(kubeconfig: str | None, context: str, deciders: Deciders) -> Cluster:
    """What there is in a live cluster."""
    # Imported here: files are explained without any of it.
    from stowplan.driver.asking import Unreachable, listed
    from stowplan.driver.client_credentials import CredentialError
    from stowplan.driver.connecting import connection_to

    try:
        found = listed(connection_to(kubeconfig, context), deciders)
    except (Unreachable, CredentialError) as problem:
        click.echo(f"stowplan: {problem}", err=True)
        sys.exit(2)
    return Cluster(found.nodes, found.pods, found.objects)


def _profile_of(key: str, cluster: Cluster, deciders: Deciders, profile: str | None) -> str | None:
    """Whose rules judge a pod of a live cluster: where its own scheduler is not among the profiles
    and there is one only, that one."""
    profiles = deciders.configuration.profiles
    own = found_pod(key, cluster).spec.scheduler_name
    if profile or own in profiles or len(profiles) != 1 or deciders.batch is not None:
        return profile
    return next(iter(profiles))


def _is_for_sessions(deciders: Deciders, scheduler: str) -> bool:
    """True where a pod of this scheduler is decided by sessions, or by nothing else."""
    batch = deciders.batch
    if batch is None:
        return False
    return scheduler == batch.scheduler_name or not deciders.configuration.profiles


def _print_json(told: msgspec.Struct) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(told), indent=2))
