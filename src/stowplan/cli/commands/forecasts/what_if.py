"""`stowplan what-if`: what changes of a cluster would do."""

from __future__ import annotations

import sys
from typing import Any

import click

from stowplan.cli import forecast_options, options, simulate_options
from stowplan.cli.command import Command, flag, grouped

EXAMPLES = """
# Can zone c be switched off?
stowplan what-if -f cluster.yaml --drain zone-c

# Four more nodes of a pool, and 50 replicas
stowplan what-if --context prod --add-nodes gpu-pool=4 --scale deploy/web=50

# Whom a new job would preempt
stowplan what-if -f cluster.yaml --submit job.yaml

# Fail in CI if a pod would be left without a node
stowplan what-if -f cluster.yaml --changes plan.yaml --fail-if 'unplaced != 0 or lost != 0'

# Another weight of a queue, over an hour of virtual time
stowplan what-if -f cluster.yaml --base-config kube-batch.yaml --queue research.weight=2 --for 1h
"""


def _change(kind: str, metavar: str, text: str) -> Any:
    """The option of one kind of change; all of them are repeatable."""
    name = f"change_{kind.replace('-', '_')}"
    return flag(f"--{kind}", name, metavar=metavar, multiple=True, help=f"{text} Repeatable.")


change_options = grouped(
    _change("add-nodes", "POOL=N", "Add N nodes like those of a pool."),
    _change("remove-node", "NODE", "Remove a node; owners create its pods again."),
    _change(
        "drain",
        "ZONE|NODE|SELECTOR",
        "Cordon nodes and evict their pods within disruption budgets.",
    ),
    _change("cordon", "NODE", "Make a node unschedulable."),
    _change("taint", "NODE=KEY=VALUE:EFFECT", "Taint a node; with a - at the end, remove it."),
    _change("label", "NODE=KEY=VALUE", "Label a node; NODE=KEY- removes the label."),
    _change("scale", "KIND/NAME=N", "Give a workload N pods."),
    _change("submit", "FILE", "Create the pods and workloads of manifests."),
    _change("delete", "KIND/NAME", "Delete a workload with its pods, a pod, or an object."),
    _change(
        "queue",
        "NAME.FIELD=VALUE",
        "Set a field of a queue, such as weight, capability.RESOURCE or quota.RESOURCE.",
    ),
    _change("config", "FILE", "Schedule by another configuration."),
    _change("plugin", "FILE.py", "Schedule with these plugins, too."),
    _change("priority", "KIND/NAME=N|CLASS", "Give pods another priority."),
)


@click.command(name="what-if", cls=Command, examples=EXAMPLES)
@forecast_options.question_cluster
@change_options
@flag(
    "--changes",
    "changes_file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="YAML list of changes, each a mapping such as `drain: zone-c`.  [default: none]",
)
@flag(
    "--for",
    "for_s",
    metavar="DURATION",
    callback=simulate_options.positive_duration_callback,
    help="Look this far ahead in virtual time, as 90s, 15m, 12h or 30d: pods end, queue and "
    "preempt.  [default: decide every pending pod once]",
)
@flag(
    "--default-run",
    "default_s",
    metavar="DURATION",
    callback=simulate_options.positive_duration_callback,
    help="With --for, run time of pods of Jobs and of bare pods that declare none.  [default: they "
    "run on]",
)
@simulate_options.autoscale_of(
    "Add nodes for pods that do not fit, and with --for remove them, as an autoscaler with the "
    "pools of this file does.  [default: nodes stay]"
)
@flag(
    "--fail-if",
    metavar="EXPR",
    help="Exit with 1 if this holds: MEASURE OP NUMBER, joined by `and` and `or`. Measures are the "
    "names of the JSON summary.  [default: exit with 0]",
)
@flag("--no-preemption", is_flag=True, help="Leave pods that do not fit pending.")
@forecast_options.base_config
@forecast_options.base_plugin
@options.feature_gates
@forecast_options.seed
@forecast_options.question
def command(**given: Any) -> None:
    """Show what changes would do: which pods move, are evicted, or stay without a node.

    The cluster is read from files (FILE, -f FILE) or from an API server (--kubeconfig, --context),
    which is listed once and not modified, or is that of a recording (--record, --at), decided with
    its configuration. Without any it is that of `stowplan up` in this directory, decided as its
    running scheduler does unless options say otherwise.

    The changes apply together, whatever their order. Pending pods are decided with and without
    them, as `stowplan simulate` does, so that the difference is that of the changes. What still
    does not fit preempts as in kube-scheduler. `-o wide` lists every pod, `-o name` the pods
    without a node.
    """
    from stowplan.cli.runs.cluster_source import ClusterSource
    from stowplan.cli.runs.forecasts.what_if import WhatIfRequest, run_what_if

    source = ClusterSource.take(given, local=True)
    changes = {
        name.removeprefix("change_").replace("_", "-"): given.pop(name)
        for name in [name for name in given if name.startswith("change_")]
    }
    sys.exit(run_what_if(WhatIfRequest(source=source, changes=changes, **given)))
