"""`stowplan demo`: a scripted demonstration on an embedded cluster."""

from __future__ import annotations

import sys

import click

from stowplan.cli.command import Command, flag

EXAMPLES = """
# Run the demonstration; it takes half a minute
stowplan demo

# Run it without pauses
stowplan demo --fast

# Write it into a file that a browser opens
stowplan demo --report demo.html

# Look at it in a browser, during the steps and afterwards
stowplan demo --keep
"""


@click.command(name="demo", cls=Command, examples=EXAMPLES)
@flag(
    "--report",
    metavar="FILE.html",
    type=click.Path(dir_okay=False),
    help="Write the run into one HTML file: nodes at any moment, checks, placements, waits.  "
    "[default: none]",
)
@flag("--fast", is_flag=True, help="Skip the pauses between the steps.")
@flag(
    "--keep",
    is_flag=True,
    help="Serve the web page, and go on after the last step until Ctrl-C.",
)
def command(report: str | None, fast: bool, keep: bool) -> None:
    """Show pod scheduling and gang scheduling on a small embedded cluster, in half a minute.

    An API server, controllers, six hollow nodes and the scheduler of `stowplan run` run in this
    process. It needs no cluster, and leaves no files but that of --report. Exit code 1 if a check
    fails.
    """
    from stowplan.cli.runs.demo import run_demo_command

    sys.exit(run_demo_command(fast=fast, keep=keep, report=report))
