"""`stowplan import`: a cluster of another scheduler with its configuration, as a simulation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from stowplan.cli import live_options, options
from stowplan.cli.command import Group, flag, grouped

GROUP_EXAMPLES = """
# Import a cluster that Volcano schedules, and simulate its next sessions
stowplan import volcano --context prod
"""
EXAMPLES = """
# Import a cluster that Volcano schedules, and simulate its next sessions
stowplan import volcano --context prod

# The same of a dump, with every pod that is not placed
stowplan import volcano dump.yaml -o wide

# Keep what was imported, for other commands: prod/cluster.json and prod/volcano-scheduler.conf
stowplan import volcano --context prod --save prod
"""
SOURCE = grouped(
    options.files,
    options.cluster,
    options.orphans,
    options.validate,
    live_options.kubeconfig,
    live_options.context,
)
OUTPUTS = ("table", "wide", "json", "yaml", "csv", "name")


@click.group(name="import", cls=Group, examples=GROUP_EXAMPLES)
def command() -> None:
    """Simulate a cluster of another scheduler by its own configuration."""


@command.command(name="volcano", examples=EXAMPLES)
@SOURCE
@flag(
    "--exact",
    is_flag=True,
    help="Reproduce Volcano's defects too, as --compat volcano-1.15 elsewhere.",
)
@flag(
    "--save",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write cluster.json and volcano-scheduler.conf to this directory.  [default: nothing is "
    "written]",
)
@flag(
    "-o",
    "--output",
    type=click.Choice(OUTPUTS),
    default="table",
    help="Output format, as for `stowplan simulate`.",
)
def volcano(exact: bool, save: Path | None, output: str, **given: Any) -> None:
    """Read a cluster that Volcano schedules, and simulate its next sessions.

    The cluster is read from dumps (FILE, -f FILE) or from an API server (--kubeconfig, --context),
    which is listed once and not modified. Nodes, pods, PodGroups, Queues, HyperNodes, Jobs,
    classes, volumes, claims and budgets are read; Jobs whose pods do not exist yet get them. The
    configuration is that of the ConfigMap with a volcano-scheduler.conf, and of the flags of the
    scheduler's pod. What is not modelled is said on standard error.
    """
    from stowplan.cli.runs.cluster_source import ClusterSource
    from stowplan.cli.runs.queue_models.import_volcano import run_import_volcano

    source = ClusterSource.take(given)
    sys.exit(run_import_volcano(source, save, output, is_exact=exact))
