"""`stowplan eta`: when pending pods and jobs are expected to start."""

from __future__ import annotations

import sys
from typing import Any

import click

from stowplan.cli import forecast_options, options, simulate_options
from stowplan.cli.command import Command, flag, grouped
from stowplan.cli.completion import complete_pods

EXAMPLES = """
# When will a job of a dump start
stowplan eta job/train -f dump.json

# All pending pods of the current context of kubectl, by job
stowplan eta --all --context prod

# A gang, by the configuration that the cluster uses, with a wider interval
stowplan eta podgroup/train -f cluster.yaml --config batch.yaml --interval 5-95

# As it was expected at a moment of a recording
stowplan eta job/train --record run.rec --at +90s

# As of a moment, every pod, for programs
stowplan eta --all -f dump.json --now 2026-05-01T12:00:00Z -o json
"""


future_options = grouped(
    flag(
        "--horizon",
        "horizon_s",
        metavar="DURATION",
        callback=simulate_options.positive_duration_callback,
        help="Simulate so far ahead, as 12h or 30d.  [default: 30d; with --arrivals 1d]",
    ),
    flag(
        "--arrivals",
        "arrivals_s",
        metavar="DURATION",
        callback=simulate_options.positive_duration_callback,
        help="Pods go on arriving as those that were created in this time, such as 6h, before "
        "now.  [default: no more pods arrive]",
    ),
    simulate_options.autoscale_of(
        "Add and remove nodes as an autoscaler with the pools of this file does.  [default: nodes "
        "stay]"
    ),
)
"""What happens until pods start."""


_calibrate = flag(
    "--calibrate",
    type=click.IntRange(min=0, max=100),
    default=0,
    show_default=True,
    metavar="MOMENTS",
    help="Forecast so many past moments as well, from what pods show of them, and widen intervals "
    "by how wrong those were; takes MOMENTS times as long.",
)


@click.command(name="eta", cls=Command, examples=EXAMPLES)
@click.argument("target", metavar="[JOB|POD]", required=False, shell_complete=complete_pods)
@forecast_options.question_cluster
@options.config
@options.plugin
@options.compat
@flag(
    "-n",
    "--namespace",
    metavar="NAMESPACE",
    help="Namespace of JOB or POD; with --all, show only this one.  [default: that of the context, "
    "else default; with --all all of them]",
)
@flag("--all", "every", is_flag=True, help="Forecast all pending pods; without JOB or POD.")
@future_options
@forecast_options.now
@flag(
    "--draws",
    type=click.IntRange(min=1, max=10_000),
    default=40,
    show_default=True,
    help="Number of simulations where run times are drawn from observed ones; else it is one.",
)
@flag(
    "--interval",
    metavar="LOW-HIGH",
    default="10-90",
    show_default=True,
    help="Percentiles of the interval, around 50.",
)
@flag(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the draws and of ties between nodes.",
)
@_calibrate
@options.output("table", "wide", "json", "yaml", "name")
def command(**given: Any) -> None:
    """Forecast when JOB or POD starts: the cluster is simulated forward by its scheduler.

    The cluster is read from files (FILE, -f FILE) or from an API server (--kubeconfig, --context),
    which is listed once and not modified, or is that of a recording (--record, --at), decided with
    its configuration. Without any it is that of `stowplan up` in this directory, decided as its
    running scheduler does unless options say otherwise.

    JOB is job/NAME, deploy/NAME, rs, sts, ds, cj or rc, podgroup/NAME (or pg/NAME) or a plain name;
    POD is NAME, NAMESPACE/NAME or pod/NAME.

    Pods run for as long as the annotation stowplan.dev/run-seconds says, else as finished pods of
    the same owner did (drawn once per simulation), else until activeDeadlineSeconds, else as
    finished pods of other owners. Pods of services do not end. The table has the median, and an
    interval over the simulations; `-o wide` lists pods. What was assumed is printed below.

    "never" is what no node could take even without other pods. Exit code 1 if something starts in
    no simulation before the horizon. `scheduler: kueue`: when jobs are admitted.
    """
    from stowplan.cli.runs.cluster_source import ClusterSource
    from stowplan.cli.runs.forecasts.eta import run_eta
    from stowplan.cli.runs.forecasts.eta_request import EtaRequest
    from stowplan.cli.runs.scheduler_config import read_asked_deciders

    source = ClusterSource.take(given, local=True)
    config_files, plugin_files = given.pop("config_files"), given.pop("plugin_files")
    compat, output = given.pop("compat"), given.pop("output")
    deciders = read_asked_deciders(source, config_files, plugin_files, compat, admits=True)
    sys.exit(run_eta(EtaRequest(source=source, **given), deciders, output))
