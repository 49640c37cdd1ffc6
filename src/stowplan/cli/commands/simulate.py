"""`stowplan simulate`: let a scheduler place the pods of a cluster and say what happened."""

from __future__ import annotations

import sys
from typing import Any

import click

from stowplan.cli import live_options, options, simulate_options

OUTPUTS = ("table", "wide", "json", "yaml", "csv")


@click.command(name="simulate")
@options.input_options
@live_options.kubeconfig
@live_options.context
@options.config
@options.profile
@options.plugin
@simulate_options.extender
@options.compat
@simulate_options.node_count
@simulate_options.pod_count
@simulate_options.replay_options
@simulate_options.seeds
@simulate_options.n_seeds
@simulate_options.explain
@options.namespace
@options.all_namespaces
@options.out
@click.option(
    "-o",
    "--output",
    type=click.Choice(OUTPUTS),
    default="table",
    show_default=True,
    help="wide: every pod without a node. json, yaml: figures and placements. csv: placements.",
)
@simulate_options.strict
def command(**given: Any) -> None:
    """Let a scheduler place the pending pods of a cluster.

    The cluster is that of files (FILE, -f FILE), or of a live one (--kubeconfig, --context), whose
    objects are listed once and not written. Without either it is generated: a mixed GPU and CPU
    cluster, the same for the same seed. Pods come one by one in the order of their arrival, each is
    tried once, and nobody leaves.
    With --replay they come and leave by their times, and the scheduler queues, tries again and
    preempts as it would in a cluster; a day takes seconds.
    With a file of actions and tiers sessions are held until one changes nothing, or with --replay
    one after the other as time passes.
    """
    from stowplan.cli.runs.simulate import SimulateRequest, run_simulate

    own = {name: given.pop(name) for name in SimulateRequest._fields}
    sys.exit(run_simulate(SimulateRequest(**own), simulate_options.replay_options_of(given)))
