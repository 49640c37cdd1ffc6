"""What is said on standard error of the input that a command has read."""

from __future__ import annotations

import click

from stowplan.sim.cluster import Cluster
from stowplan.sim.ignored import of_effect, told

IGNORED = 2
"""Exit code with --strict where kinds were ignored that may change the answer."""


def tell_ignored(cluster: Cluster | None) -> None:
    """Say which kinds were ignored, and how many objects of each."""
    for line in told(cluster.ignored) if cluster is not None else ():
        click.echo(f"stowplan: {line}", err=True)


def tell_input(cluster: Cluster) -> None:
    """Say what was ignored, and the notes, for commands that print them nowhere else."""
    tell_ignored(cluster)
    for note in cluster.notes:
        click.echo(f"stowplan: note: {note}", err=True)


def strict_code(code: int, cluster: Cluster | None, *, strict: bool) -> int:
    """The exit code: with --strict `IGNORED` where kinds were ignored that may matter."""
    return IGNORED if strict and cluster is not None and of_effect(cluster.ignored) else code
