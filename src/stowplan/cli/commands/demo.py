"""`stowplan demo`: a scripted minute on a cluster in this process."""

from __future__ import annotations

import sys

import click


@click.command(name="demo")
@click.option("--fast", is_flag=True, help="Do not stop for people to read.")
def command(fast: bool) -> None:
    """Show what Stowplan does, on a small cluster made for it: half a minute.

    An API server, controllers and six hollow nodes run in this process, and beside them the
    scheduler of `stowplan run`. Nothing else is needed, nothing is left at the end. Exit code 1
    when something that was expected did not come.
    """
    from stowplan.cli.runs.demo import run_demo_command

    sys.exit(run_demo_command(fast=fast))
