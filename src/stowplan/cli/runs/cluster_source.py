"""Reading: the cluster that a command is about, from files or as a live one has it now."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from stowplan.assembly.deciders import Deciders
    from stowplan.inputs.cluster_reader import Cluster


class ClusterSource(NamedTuple):
    """Where a command's cluster comes from.

    paths: files and directories. kubeconfig, context: of a live cluster. orphans, validate: how
    files are read, see `read_cluster`; validate None: "auto".
    """

    paths: tuple[str, ...]
    kubeconfig: str | None
    context: str
    orphans: str = "pending"
    validate: str | None = None


def is_live(source: ClusterSource) -> bool:
    """True where a live cluster is meant; raises a usage error where files are given as well."""
    live = bool(source.kubeconfig or source.context)
    if source.paths and live:
        raise click.UsageError("--kubeconfig and --context cannot stand beside files: one of them.")
    return live


def read_cluster_source(
    source: ClusterSource, deciders: Deciders, *, notes: bool = False
) -> Cluster:
    """The cluster of the files, or of a kubeconfig: what the rules read of it, listed once.

    notes: print those of the cluster, for commands that print them nowhere else. Raises InputError
    and usage errors; ends with exit code 2 where no server answers.
    """
    if is_live(source):
        return _live(source.kubeconfig, source.context, deciders)
    if not source.paths:
        raise click.UsageError(
            "No cluster: name files (FILE, -f FILE, - for standard input), or a live one "
            "(--kubeconfig FILE, --context NAME)."
        )
    from stowplan.cli.runs.input_reading import read_input

    return read_input(source.paths, source.orphans, source.validate, notes=notes)


def _live(kubeconfig: str | None, context: str, deciders: Deciders) -> Cluster:
    from stowplan.driver.client.credentials import CredentialError
    from stowplan.driver.client.kubeconfig_loading import load_client_config
    from stowplan.driver.client.one_shot_requests import ServerUnreachable, list_once
    from stowplan.inputs.cluster_reader import Cluster

    try:
        found = list_once(load_client_config(kubeconfig, context), deciders)
    except (ServerUnreachable, CredentialError) as problem:
        click.echo(f"stowplan: {problem}", err=True)
        sys.exit(2)
    return Cluster(found.nodes, found.pods, found.objects)
