"""`stowplan simulate`: a cluster's pending pods scheduled in memory, or a replayed workload."""

from __future__ import annotations

import sys
from typing import Any

import click

from stowplan.cli import (
    live_options,
    node_failure_options,
    options,
    record_options,
    simulate_options,
    web_option,
)
from stowplan.cli.command import Command, command_line, flag
from stowplan.driver.gc_settings import infrequent_collections

OUTPUTS = ("table", "wide", "json", "yaml", "csv", "name")

EXAMPLES = """
# Schedule a generated workload: 5,000 pods on 1,000 nodes
stowplan simulate

# Schedule the pending pods of manifests and list every pod that is not placed
stowplan simulate -f cluster.yaml -o wide

# Schedule the pending pods of a live cluster by another configuration
stowplan simulate --context prod --config scheduler.yaml

# Replay a day of a trace in virtual time and write the results
stowplan simulate -f trace.csv --replay --until 1d --out results

# Replay jobs of a trace at random times, twice as many in an hour, with three seeds
stowplan simulate -f trace.swf --arrivals poisson,rate=240 --seeds 3

# Replay a generated workload and write a report to look at
stowplan simulate --replay --report run.html

# Replay a trace, and look at it in a browser: any moment of the run
stowplan simulate -f trace.csv --replay --web

# Compare five random seeds
stowplan simulate --node-count 20 --pod-count 50 --seeds 5
"""


@click.command(name="simulate", cls=Command, examples=EXAMPLES)
@live_options.source_options
@options.config
@options.profile
@options.plugin
@simulate_options.extender
@options.compats
@options.feature_gates
@simulate_options.node_count
@simulate_options.pod_count
@simulate_options.replay_options
@node_failure_options.node_lifecycle_options("; implies --replay")
@simulate_options.arrivals
@simulate_options.seeds
@simulate_options.n_seeds
@simulate_options.explain
@options.namespace
@options.all_namespaces
@options.out
@simulate_options.report
@web_option.web
@flag(
    "-o",
    "--output",
    type=click.Choice(OUTPUTS),
    default="table",
    help="Output format. wide and name list every pod that is not placed; json and yaml have all "
    "figures and placements, csv the placements.",
)
@simulate_options.strict
@record_options.record_options
def command(**given: Any) -> None:
    """Schedule the pending pods of a cluster in memory.

    The cluster is read from files (FILE, -f FILE) or from an API server (--kubeconfig, --context),
    which is listed once and not modified. Without either it is generated: GPU and CPU nodes of
    several sizes, the same for the same seed. Pods are scheduled in the order of their arrival,
    each is attempted once, and none ends.

    With --replay pods arrive and end by their timestamps in virtual time, and the scheduler queues,
    retries and preempts as it does in a cluster; a day takes seconds.

    With a configuration of actions and tiers sessions run until one changes nothing, or with
    --replay periodically in virtual time.
    """
    # The imports make more objects than a small simulation.
    with infrequent_collections():
        from stowplan.cli.runs.cluster_source import ClusterSource
        from stowplan.cli.runs.simulate import SimulateRequest, run_simulate

        given["command_line"] = command_line(click.get_current_context().obj)
        given["record"] = record_options.RecordRequest.take(given)
        node_lifecycle = node_failure_options.take_node_lifecycle(given)
        source = ClusterSource.take(given)
        own = {name: given.pop(name) for name in SimulateRequest._fields if name != "source"}
        given["replay"] = given["replay"] or own["arrivals"] is not None
        replay = simulate_options.replay_options_of(given, node_lifecycle)
        sys.exit(run_simulate(SimulateRequest(source=source, **own), replay))
