"""`stowplan queues`: deserved, allocated and pending resources of queues, and what they borrow."""

from __future__ import annotations

import sys
from typing import Any

import click

from stowplan.cli import live_options, options
from stowplan.cli.command import Command, flag

EXAMPLES = """
# Show the queues of manifests
stowplan queues -f cluster.yaml

# Show the queues of a live cluster by its own configuration
stowplan queues --context prod --config kube-batch-conf.yaml

# Find quotas that cannot be met, and jobs that can never start; with Kueue by --config
stowplan queues --audit --compat kai -f cluster.yaml

# Print the names of the queues
stowplan queues -f cluster.yaml -o name
"""


@click.command(name="queues", cls=Command, examples=EXAMPLES)
@live_options.source_options
@flag(
    "--config",
    "config_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Configuration of sessions: a file with actions and tiers, of kube-batch, Volcano or KAI. "
    "Repeatable.  [default: the default configuration of the scheduler that --compat names, else "
    "kube-batch's]",
)
@click.option(
    "--audit",
    is_flag=True,
    help="Find quotas, limits and runtimes that cannot hold, jobs that can never start, and queues "
    "that starve while others borrow. Exit code 1 if something can never be met.",
)
@options.plugin
@options.compats
@options.output("table", "wide", "json", "yaml", "name")
def command(**given: Any) -> None:
    """Display what each queue deserves, has allocated and has pending, and who borrows from whom.

    The cluster is read from files (FILE, -f FILE) or from an API server (--kubeconfig, --context);
    without either it is that of `stowplan up` in this directory. The configuration is that of its
    running scheduler, if that has queues, unless --config, --compat or --plugin is given.

    With a configuration of `scheduler: kueue` the figures are nominal, borrowed and used quota by
    flavor, once Kueue has admitted what it can. Otherwise no pod is scheduled: the figures are
    those at the opening of a session. Without --config the default configuration of the scheduler
    that --compat names holds; without --compat queues share by weight, as in kube-batch's.

    Amounts are in cores, in bytes with a suffix, or in units of an extended resource. `-o wide`
    adds each queue's part of the cluster by weight.
    """
    from stowplan.cli.runs.cluster_source import ClusterSource
    from stowplan.cli.runs.queues import run_audit, run_queues
    from stowplan.cli.runs.scheduler_config import read_queue_deciders

    source = ClusterSource.take(given, local=True)
    config_files, plugin_files = given["config_files"], given["plugin_files"]
    deciders = read_queue_deciders(source, config_files, plugin_files, given["compat"])
    if given["audit"]:
        sys.exit(run_audit(source, deciders, given["output"]))
    run_queues(source, deciders, given["output"])
