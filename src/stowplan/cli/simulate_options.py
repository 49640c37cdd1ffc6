"""The options of `stowplan simulate` that no other command has: seeds, and those of a replay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from stowplan.cli.command import flag, grouped
from stowplan.objects.timing.duration_text import parse_churn, parse_duration

if TYPE_CHECKING:
    from stowplan.controllers.node_lifecycle.node_lifecycle_options import NodeLifecycleOptions
    from stowplan.insight.autoscaling.autoscale_config import AutoscaleConfig
    from stowplan.simulation.replay import ReplayOptions

BIND_S, START_S = 0.01, 1.0
"""The defaults of `stowplan.simulation.cluster.simulated_cluster.Pace`, which imports too much for
a help text."""

N_NODES = 1000
N_PODS = 5000


def duration_callback(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> float | None:
    """The seconds of an option that is a duration."""
    try:
        return None if value is None else parse_duration(value)
    except ValueError as problem:
        raise click.BadParameter(str(problem), ctx, param) from None


def positive_duration_callback(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> float | None:
    """The seconds of an option that is a duration greater than zero."""
    seconds = duration_callback(ctx, param, value)
    if seconds == 0:
        raise click.BadParameter("must be greater than 0", ctx, param)
    return seconds


def factor_callback(
    ctx: click.Context, param: click.Parameter, value: float | None
) -> float | None:
    """The value of an option that multiplies."""
    if value is not None and not 0 < value < math.inf:
        raise click.BadParameter("must be a number greater than 0", ctx, param)
    return value


def churn_callback(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[float, float] | None:
    """Mean seconds for which nodes are present and absent, of an option UP/DOWN."""
    if value is None:
        return None
    try:
        return parse_churn(value)
    except ValueError as problem:
        raise click.BadParameter(str(problem), ctx, param) from None


def autoscale_of(text: str) -> Callable[[Any], Any]:
    """The option --autoscale with this help."""
    return flag("--autoscale", metavar="FILE", type=click.Path(dir_okay=False), help=text)


extender = flag(
    "--extender",
    "extender_files",
    metavar="FILE.py",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Python file with classes that answer for the configuration's extenders. Repeatable.",
)
seeds = flag(
    "--seed",
    "seed",
    type=click.IntRange(min=0),
    multiple=True,
    default=(0,),
    show_default=False,
    help="Seed of the random generators. Repeatable: one run per seed.  [default: 0]",
)
n_seeds = flag(
    "--seeds",
    "n_seeds",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of runs, with consecutive seeds from --seed.  [default: 1]",
)
explain = flag(
    "--explain",
    metavar="POD",
    default="",
    help="Also explain the decision for this pod, at the time of its attempt; with --replay, if it "
    "is pending at the end. NAME, NAMESPACE/NAME, or deploy/NAME.",
)
replay = flag(
    "--replay",
    is_flag=True,
    help="Replay in virtual time: pods arrive and end by their timestamps.",
)
speedup = flag(
    "--speedup",
    metavar="FACTOR",
    type=float,
    callback=factor_callback,
    help="Divide the times between arrivals by FACTOR; run times stay.  [default: 1; implies "
    "--replay]",
)
until = flag(
    "--until",
    metavar="DURATION",
    callback=positive_duration_callback,
    help="Stop after this virtual time, as 90s, 15m, 12h or 30d.  [default: at the last event; "
    "implies --replay]",
)
churn = flag(
    "--churn",
    metavar="UP/DOWN",
    callback=churn_callback,
    help="Remove each node after UP on average and add it again after DOWN, as 30d/1h.  [default: "
    "nodes stay; implies --replay]",
)
no_departures = flag("--no-departures", is_flag=True, help="Pods never end. Implies --replay.")
bind_latency = flag(
    "--bind-latency",
    metavar="DURATION",
    callback=duration_callback,
    help=f"Time that the API server takes to bind a pod.  [default: {BIND_S:g}s; implies --replay]",
)
start_latency = flag(
    "--start-latency",
    metavar="DURATION",
    callback=duration_callback,
    help=f"Time from binding to start.  [default: {START_S:g}s; implies --replay]",
)
sample_every = flag(
    "--sample-every",
    metavar="DURATION",
    callback=positive_duration_callback,
    help="Virtual time between two rows of series.csv.  [default: a thousandth of the time of the "
    "arrivals; implies --replay]",
)
node_count = flag(
    "--node-count",
    type=click.IntRange(min=1),
    help="Scale the cluster to this number of nodes, of the same mix.  [default: as read; of the "
    f"generated workload {N_NODES}]",
)
pod_count = flag(
    "--pod-count",
    type=click.IntRange(min=0),
    help=f"Number of pods of the generated workload.  [default: {N_PODS}]",
)
arrivals = flag(
    "--arrivals",
    metavar="PROCESS[,KEY=VALUE]...",
    help="Draw jobs from the input and let them arrive at random: poisson, diurnal or bursts; "
    "rate=JOBS_PER_HOUR, jobs=N, amplitude=A, burst=N, run=lognormal|pareto; what is not given is "
    "fitted to the input.  [default: pods arrive as the input says; implies --replay]",
)
report = flag(
    "--report",
    metavar="FILE.html",
    type=click.Path(dir_okay=False),
    help="Write a report of the run as one HTML file. See `stowplan report`.  [default: none]",
)
strict = flag(
    "--strict",
    is_flag=True,
    help="Exit with 1 if a pod was not scheduled or not created, with 2 if kinds were ignored that "
    "may change the answer.",
)
autoscale = autoscale_of(
    "Add and remove nodes as an autoscaler with the pools of this file does.  [default: nodes "
    "stay; implies --replay]"
)
replay_options = grouped(
    *(replay, speedup, until, churn, no_departures, bind_latency, start_latency, sample_every),
    autoscale,
)


def replay_options_of(
    given: dict[str, Any], node_lifecycle: NodeLifecycleOptions | None = None
) -> ReplayOptions | None:
    """The replay that the options describe, None where none of them is given."""
    chosen = dict(given)
    is_replay = chosen.pop("replay")
    values = (*chosen.values(), node_lifecycle)
    if not is_replay and all(value is None or value is False for value in values):
        return None
    from stowplan.simulation.cluster.cluster_api import Pace
    from stowplan.simulation.cluster.node_churn import Churn
    from stowplan.simulation.replay import ReplayOptions

    default = Pace()
    bind_s, start_s = chosen["bind_latency"], chosen["start_latency"]
    return ReplayOptions(
        speedup=chosen["speedup"] or 1.0,
        until_s=chosen["until"],
        departures=not chosen["no_departures"],
        pace=Pace(
            default.bind_s if bind_s is None else bind_s,
            default.start_s if start_s is None else start_s,
            default.grace_s,
        ),
        churn=None if chosen["churn"] is None else Churn(*chosen["churn"]),
        sample_s=chosen["sample_every"],
        autoscale=read_autoscale_option(chosen["autoscale"]),
        node_lifecycle=node_lifecycle or ReplayOptions().node_lifecycle,
    )


def read_autoscale_option(file: str | None) -> AutoscaleConfig | None:
    """The autoscaler of a file, None without one; raises InputError and ConfigError."""
    if file is None:
        return None
    from stowplan.inputs.files import read_bytes
    from stowplan.insight.autoscaling.autoscale_config import read_autoscale

    return read_autoscale(read_bytes(file), file)
