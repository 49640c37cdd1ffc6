"""Reading the input of a command, and what is said of it on standard error."""

from __future__ import annotations

import click

from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.ignored_kinds import describe_ignored, relevant_kinds

IGNORED_EXIT_CODE = 2
"""Exit code with --strict where kinds were ignored that may change the answer."""


def read_input(
    clusters: tuple[str, ...], orphans: str, validate: str | None, *, notes: bool = False
) -> Cluster:
    """The cluster that files describe; what was ignored is said on standard error.

    notes: of the cluster as well, for commands that print them nowhere else. Raises InputError.
    """
    cluster = read_cluster(clusters, orphans=orphans, validate=validate or "auto")
    for line in describe_ignored(cluster.ignored):
        click.echo(f"stowplan: {line}", err=True)
    for note in cluster.notes if notes else ():
        click.echo(f"stowplan: note: {note}", err=True)
    return cluster


def strict_exit_code(code: int, cluster: Cluster | None, *, strict: bool) -> int:
    """The exit code: with --strict `IGNORED_EXIT_CODE` where kinds were ignored that may matter."""
    return (
        IGNORED_EXIT_CODE
        if strict and cluster is not None and relevant_kinds(cluster.ignored)
        else code
    )
