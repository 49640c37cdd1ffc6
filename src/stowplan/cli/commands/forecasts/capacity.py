"""`stowplan capacity`: how many more pods fit, the fewest nodes, nodes to empty, pods to move."""

from __future__ import annotations

import sys
from typing import Any

import click

from stowplan.cli import live_options, options, simulate_options
from stowplan.cli.command import Command, flag, grouped

EXAMPLES = """
# Show how many more pods of a Deployment fit, and what is short then
stowplan capacity web.yaml -f cluster.yaml

# Show how many more gangs of a PodGroup fit into the current context of kubectl
stowplan capacity train.yaml --context prod --config kube-batch-conf.yaml

# Find the cheapest nodes on which a workload runs
stowplan capacity shop.yaml --fit -f cluster.yaml --price small=0.19 --price large=0.77

# Find the nodes that can be emptied, with the commands to drain them
stowplan capacity --compact -f cluster.yaml

# Find pods to move so that more of the GPU cards can be used
stowplan capacity --defragment -f cluster.yaml --config gpu-share.yaml
"""


defragment_options = grouped(
    flag(
        "--defragment",
        metavar="[POLICY]",
        is_flag=False,
        flag_value="fragMultiPod",
        type=click.Choice(["fragMultiPod", "fragOnePod", "cosSim"]),
        help="Find pods to move so that GPU cards are less fragmented. POLICY chooses them: "
        "fragMultiPod, fragOnePod or cosSim.  [default: fragMultiPod]",
    ),
    flag(
        "--ratio",
        metavar="SHARE",
        type=click.FloatRange(min=0, max=1, min_open=True),
        help="Move at most this share of all pods, for --defragment.  [default: 0.1]",
    ),
    flag(
        "--force",
        is_flag=True,
        help="Also move pods without a controller, which nothing creates again; for --defragment.",
    ),
)


@click.command(name="capacity", cls=Command, examples=EXAMPLES)
@click.argument(
    "workload", metavar="[FILE]...", type=click.Path(allow_dash=True, exists=False), nargs=-1
)
@options.cluster
@options.orphans
@options.validate
@live_options.kubeconfig
@live_options.context
@flag("--fit", is_flag=True, help="Find the cheapest nodes on which FILE, or the cluster, runs.")
@flag("--compact", is_flag=True, help="Find nodes that can be emptied, in which order; no FILE.")
@defragment_options
@flag(
    "--price",
    "prices",
    metavar="POOL=AMOUNT",
    multiple=True,
    help="Price of one node of a pool, for --fit and --compact. Repeatable.  [default: 1 each]",
)
@flag(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    help="Count up to this many pods or gangs.  [default: 10000]",
)
@simulate_options.autoscale_of(
    "Count with all nodes that an autoscaler with the pools of this file may add.  [default: the "
    "nodes that there are]"
)
@options.config
@options.profile
@options.plugin
@options.compat
@options.output("table", "json", "yaml")
def command(**given: Any) -> None:
    """Show how many more pods or gangs of FILE fit into the cluster, and what is short then.

    FILE has pods, workloads or PodGroups. The cluster is read from files (-f PATH) or from an API
    server (--kubeconfig, --context), which is listed once and not modified; else it is that of
    `stowplan up` in this directory, decided as its scheduler does unless options say otherwise.

    Nothing is divided: copies of each template of FILE are decided one after another, as the
    scheduler would, until one fits nowhere. A PodGroup counts by its minMember. Nothing is evicted.

    With --fit new nodes of the cluster's pools are looked for, on which FILE runs, or without FILE
    the cluster's own pods; the least cost that any scheduler could reach is shown beside it. With
    --compact nodes are listed that can be drained one after another within the
    PodDisruptionBudgets, and where their pods go. With --defragment pods are listed whose move
    leaves less of the GPU cards without use for the pods of FILE, without FILE for the workload
    that the plugin GpuShare is configured with, or for the cluster's own pods.

    `scheduler: kueue`: how many more of the jobs of FILE are admitted, and which quota the next
    one lacks.

    Exit code 1 if nothing fits, no node can be emptied, or no move helps.
    """
    from stowplan.cli.runs.cluster_source import ClusterSource
    from stowplan.cli.runs.forecasts.capacity import CapacityRequest, run_capacity
    from stowplan.cli.runs.scheduler_config import read_profile_deciders

    given["files"] = ()
    source = ClusterSource.take(given, local=True)
    asked = [given.pop(name) for name in ("config_files", "plugin_files", "compat")]
    # Kueue counts quota, and no room: options about nodes are for the scheduler behind it.
    about_nodes = ("fit", "compact", "defragment", "autoscale", "profile")
    admits = bool(asked[0]) or not any(given[name] for name in about_nodes)
    deciders = read_profile_deciders(source, *asked, profile=given["profile"], admits=admits)
    output = given.pop("output")
    sys.exit(run_capacity(CapacityRequest(source=source, **given), deciders, output))
