"""`stowplan diagnose`: what is unfair or thrashes, live or over a recording."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from stowplan.cli import live_options, options
from stowplan.cli.command import Command, flag
from stowplan.cli.simulate_options import duration_callback

EXAMPLES = """
# Diagnose a recording at its end, and two hours after its start
stowplan diagnose run.rec
stowplan diagnose run.rec --at +2h

# Diagnose the scheduler of `stowplan up` in this directory, or of this computer
stowplan diagnose

# Every owner whose pods were preempted at all, and what is pending for a minute
stowplan diagnose run.rec --preemptions 1 --pending-for 1m -o json
"""


@click.command(name="diagnose", cls=Command, examples=EXAMPLES)
@click.argument("file", metavar="[FILE]", type=click.Path(path_type=Path), required=False)
@flag(
    "--at",
    metavar="TIME",
    default="",
    help="Time in the recording: an offset from its start such as +90s, or RFC 3339.  [default: "
    "its end]",
)
@flag(
    "--window",
    metavar="DURATION",
    callback=duration_callback,
    help="How far back preemptions count.  [default: 1h]",
)
@flag(
    "--preemptions",
    metavar="N",
    type=click.IntRange(min=1),
    help="Preemptions of pods of one owner that are repeated.  [default: 3]",
)
@flag(
    "--starving-for",
    metavar="DURATION",
    callback=duration_callback,
    help="How long a queue with pending pods has less than it deserves.  [default: 10m]",
)
@flag(
    "--pending-for",
    metavar="DURATION",
    callback=duration_callback,
    help="How long a pod is pending.  [default: 10m]",
)
@flag(
    "--address",
    metavar="HOST:PORT",
    default="",
    help="Address of a running scheduler's status.  [default: as of `stowplan status`]",
)
@live_options.status_options
@options.plugin
@options.output("table", "wide", "json", "yaml")
def command(**given: Any) -> None:
    """Find pods that preempt each other or are preempted again and again, queues that starve, and
    pods that stay pending, each with its explanation.

    FILE is a recording of --record; without it a running scheduler is asked, as by `stowplan
    status`, which counts with the default limits. Exit code 1 if anything is found.
    """
    from stowplan.cli.runs.recordings.run_diagnose import DiagnoseRequest, run_diagnose

    limits = ("window", "preemptions", "starving_for", "pending_for")
    recorded = [f"--{name.replace('_', '-')}" for name in (*limits, "at") if given[name]]
    if given["file"] is None and recorded:
        raise click.UsageError(f"{recorded[0]} needs FILE: a recording")
    live = [f"--{n.replace('_', '-')}" for n in ("address", "kubeconfig", "context") if given[n]]
    if given["file"] is not None and live:
        raise click.UsageError(f"{live[0]} cannot be used with FILE")
    if given["address"] and (given["kubeconfig"] or given["context"]):
        raise click.UsageError("--address cannot be used with --kubeconfig or --context")
    sys.exit(run_diagnose(DiagnoseRequest(**given)))
