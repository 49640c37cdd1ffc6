"""`stowplan preempt-preview`: who would have to go for pods, and what follows."""

from __future__ import annotations

import sys
from typing import Any

import click

from stowplan.cli import forecast_options, options
from stowplan.cli.command import Command, flag

EXAMPLES = """
# Whom a pending pod would preempt
stowplan preempt-preview pod/train -f cluster.yaml

# Whom the pods of a new job would preempt in a live cluster
stowplan preempt-preview --submit job.yaml --context prod

# Whom a pending PodGroup of Kubernetes would preempt as a whole
stowplan preempt-preview podgroup/train -f cluster.yaml --feature-gates \
  GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true

# The whole chain for programs
stowplan preempt-preview deploy/web -n shop -f cluster.yaml -o json
"""


@click.command(name="preempt-preview", cls=Command, examples=EXAMPLES)
@options.optional_pod
@forecast_options.question_cluster
@flag(
    "--submit",
    "submit_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(allow_dash=True),
    help="Manifests of pods or workloads that are not in the cluster, in place of POD. Repeatable.",
)
@options.config
@options.plugin
@options.feature_gates
@forecast_options.question
def command(**given: Any) -> None:
    """Show who would be evicted for POD, or for the pods of a file, and what follows.

    The cluster is read from files (FILE, -f FILE) or from an API server (--kubeconfig, --context),
    which is listed once and not modified, or is that of a recording (--record, --at), decided with
    its configuration. Without any it is that of `stowplan up` in this directory, decided as its
    running scheduler does unless options say otherwise.

    POD is NAME, NAMESPACE/NAME, pod/NAME, KIND/NAME of its owner, podgroup/NAME for the pending
    pods of a PodGroup of Kubernetes, or a file of manifests (.yaml, .yml, .json), as with --submit.
    It is tried on the cluster as read, before other pending pods. Evicted pods are created again by
    their owners, and may preempt pods of lower priority in turn. For each victim its priority, how
    long it has run, disruption budgets that its eviction breaks, and where it goes. `-o name`
    prints the victims. Exit code 1 if a pod stays without a node.
    """
    from stowplan.cli.runs.cluster_source import ClusterSource
    from stowplan.cli.runs.forecasts.preempt_preview import PreviewRequest, run_preempt_preview

    source = ClusterSource.take(given, local=True)
    sys.exit(run_preempt_preview(PreviewRequest(source=source, **given)))
