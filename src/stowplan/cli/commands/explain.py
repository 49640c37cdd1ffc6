"""`stowplan explain`: why a pod is placed where it is, or why it is pending."""

from __future__ import annotations

import sys
from typing import Any

import click

from stowplan.cli import live_options, options, record_options
from stowplan.cli.command import Command, flag, grouped

EXAMPLES = """
# Explain why a pod of a manifest is pending
stowplan explain pod/web -f cluster.yaml

# Explain the pod of a Deployment that is pending, in the current context of kubectl
stowplan explain deploy/web -n shop --context prod

# Explain a gang
stowplan explain podgroup/train -f cluster.yaml --config kube-batch-conf.yaml

# The smallest changes that let a pod run, with JSON patches of the objects
stowplan explain deploy/web -f cluster.yaml --changes -o json

# All pending pods by cause, the largest group first
stowplan explain --all-pending -f cluster.yaml

# Explain why a pod was pending at a moment of a recording
stowplan explain pod/web --record run.rec --at +90s

# Use another scheduler configuration than the cluster does
stowplan explain pod/web -f cluster.yaml --config scheduler.yaml -o yaml
"""

_all_pending = grouped(
    flag(
        "--all-pending",
        is_flag=True,
        help="Evaluate all pending pods and group them by cause, biggest first; without POD.",
    ),
    flag(
        "--from-events",
        is_flag=True,
        help="Group the pending pods by what the cluster's scheduler recorded: FailedScheduling "
        "events in files, else PodScheduled conditions; without POD.",
    ),
)


@click.command(name="explain", cls=Command, examples=EXAMPLES)
@options.optional_pod
@live_options.source_options
@options.config
@options.profile
@options.plugin
@options.compats
@options.feature_gates
@flag(
    "-n",
    "--namespace",
    metavar="NAMESPACE",
    help="Namespace of POD.  [default: that of the context, else default]",
)
@flag(
    "-A",
    "--all-namespaces",
    is_flag=True,
    help="Look for POD in all namespaces; overrides --namespace.",
)
@flag(
    "--after-simulation",
    is_flag=True,
    help="Explain the decision in `stowplan simulate`, at the time of POD's attempt.",
)
@flag(
    "--changes/--no-changes",
    default=None,
    help="Show only the smallest changes that let POD run, or leave them out.  [default: beside "
    "the explanation]",
)
@_all_pending
@record_options.recorded_moment
@options.output("table", "wide", "json", "yaml", "name")
def command(**given: Any) -> None:
    """Show for each node which plugins reject POD, what it requests and what is free.

    The cluster is read from files (FILE, -f FILE) or from an API server (--kubeconfig, --context),
    which is listed once and not modified, or is that of a recording (--record, --at), decided with
    its configuration. Without any it is that of `stowplan up` in this directory, decided as its
    running scheduler does unless options say otherwise.

    With a configuration of `scheduler: kueue`, job/NAME says whether Kueue admits the job, and
    which quota in which cohort is short.

    POD is NAME, NAMESPACE/NAME or pod/NAME. deploy/NAME, rs, sts, ds, job, cj and rc select one of
    the owner's pods: the last pending one. podgroup/NAME (or pg/NAME) explains a gang.

    The pod is evaluated on the cluster as read, before other pending pods are scheduled; a pod that
    has a node, as if it were scheduled now. The answer of `stowplan simulate` is shown beside it,
    and --after-simulation explains that one. A pod of a session scheduler is explained by one
    session, with its gang and queue. `-o wide` lists every node, `-o name` prints the explained
    object. Exit code 1 if no node fits.

    For a pod that fits nowhere the smallest changes that would let it run are shown, each tried on
    a copy. With --changes the exit code is 1 if there is none.
    """
    from stowplan.cli.runs.cluster_source import ClusterSource
    from stowplan.cli.runs.explain import ExplainRequest, run_explain
    from stowplan.cli.runs.scheduler_config import read_asked_deciders

    source = ClusterSource.take(given, local=True)
    config_files, output = given.pop("config_files"), given.pop("output")
    gates = given.pop("feature_gates")
    request = ExplainRequest(source=source, **given)
    asked = source, config_files, request.plugin_files, request.compat
    deciders = read_asked_deciders(*asked, gates, admits=True)
    sys.exit(run_explain(request, deciders, output))
