"""Reading: the cluster that a command is about, from files or as a live one has it now."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from stowplan.assembly.deciders import Deciders
    from stowplan.sim.cluster import Cluster


def is_live(paths: tuple[str, ...], kubeconfig: str | None, context: str) -> bool:
    """True where a live cluster is meant; raises a usage error where files are given as well."""
    live = bool(kubeconfig or context)
    if paths and live:
        raise click.UsageError("--kubeconfig and --context cannot stand beside files: one of them.")
    return live


def cluster_of(
    paths: tuple[str, ...], kubeconfig: str | None, context: str, deciders: Deciders
) -> Cluster:
    """The cluster of the files, or of a kubeconfig: what the rules read of it, listed once.

    Raises InputError and usage errors; ends with exit code 2 where no server answers.
    """
    if is_live(paths, kubeconfig, context):
        return _live(kubeconfig, context, deciders)
    if not paths:
        raise click.UsageError(
            "No cluster: name files (FILE, -f FILE, - for standard input), or a live one "
            "(--kubeconfig FILE, --context NAME)."
        )
    from stowplan.sim.cluster import read_cluster

    return read_cluster(paths)


def _live(kubeconfig: str | None, context: str, deciders: Deciders) -> Cluster:
    from stowplan.driver.asking import Unreachable, listed
    from stowplan.driver.client_credentials import CredentialError
    from stowplan.driver.connecting import connection_to
    from stowplan.sim.cluster import Cluster

    try:
        found = listed(connection_to(kubeconfig, context), deciders)
    except (Unreachable, CredentialError) as problem:
        click.echo(f"stowplan: {problem}", err=True)
        sys.exit(2)
    return Cluster(found.nodes, found.pods, found.objects)
