"""The options of `stowplan simulate` that are its own: seeds, and all that a replay needs."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from stowplan.simulation.replay import ReplayOptions

BIND_S, START_S = 0.01, 1.0
"""The defaults of `stowplan.simulation.cluster.simulated_cluster.Pace`, which imports too much for
a help text."""

N_NODES = 1000
N_PODS = 5000

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)")
_SPAN_MAX = 10**10
_WANTED = "a span of time such as 90s, 15m, 12h, 30d"


def parse_duration(text: str) -> float:
    """Seconds that a text like 90s, 15m, 12h or 30d says; raises ValueError."""
    found = _SPAN.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else math.inf
    if seconds > _SPAN_MAX:
        raise ValueError(f"got {text!r}, wanted {_WANTED}")
    return seconds


def duration_callback(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> float | None:
    """An option that is a span of time."""
    try:
        return None if value is None else parse_duration(value)
    except ValueError as problem:
        raise click.BadParameter(str(problem), ctx, param) from None


def positive_duration_callback(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> float | None:
    """The same, and more than nothing."""
    seconds = duration_callback(ctx, param, value)
    if seconds == 0:
        raise click.BadParameter(f"got {value!r}, wanted more than 0 seconds", ctx, param)
    return seconds


def factor_callback(
    ctx: click.Context, param: click.Parameter, value: float | None
) -> float | None:
    """An option that multiplies."""
    if value is not None and not 0 < value < math.inf:
        raise click.BadParameter(f"got {value:g}, wanted a number above 0", ctx, param)
    return value


def churn_callback(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[float, float] | None:
    """An option that says how many seconds nodes stay and stay away: UP/DOWN."""
    if value is None:
        return None
    up, slash, down = value.partition("/")
    try:
        churn = parse_duration(up), parse_duration(down)
    except ValueError:
        churn = 0.0, 0.0
    if not slash or not all(churn):
        text = f"got {value!r}, wanted UP/DOWN, each {_WANTED}"
        raise click.BadParameter(text, ctx, param)
    return churn


extender = click.option(
    "--extender",
    "extender_files",
    metavar="FILE.py",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="A file with classes that answer in place of the configuration's extenders. Repeatable.",
)
seeds = click.option(
    "--seed",
    "seed",
    type=click.IntRange(min=0),
    multiple=True,
    default=(0,),
    show_default="0",
    help="Seed of every draw. Repeatable: a run for each.",
)
n_seeds = click.option(
    "--seeds",
    "n_seeds",
    metavar="N",
    type=click.IntRange(min=1),
    help="As many runs, with seeds from the first one up.",
)
explain = click.option(
    "--explain",
    metavar="POD",
    default="",
    help="Explain this pod on the cluster as it is when its turn comes; with --replay, if it waits "
    "at the end. NAME, NAMESPACE/NAME, or deploy/NAME.",
)
replay = click.option(
    "--replay",
    is_flag=True,
    help="Let pods come and leave by their times, in virtual time.",
)
speedup = click.option(
    "--speedup",
    metavar="X",
    type=float,
    callback=factor_callback,
    help="Arrivals X times closer together; run times stay. Implies --replay.",
)
until = click.option(
    "--until",
    metavar="SPAN",
    callback=positive_duration_callback,
    help="Stop after this much virtual time. Implies --replay.",
)
churn = click.option(
    "--churn",
    metavar="UP/DOWN",
    callback=churn_callback,
    help="Nodes leave after UP on average and are back after DOWN, as 30d/1h. Implies --replay.",
)
no_departures = click.option(
    "--no-departures", is_flag=True, help="Pods that have come never leave. Implies --replay."
)
bind_latency = click.option(
    "--bind-latency",
    metavar="SPAN",
    callback=duration_callback,
    help=f"How long the API takes to bind.  [default: {BIND_S:g}s; implies --replay]",
)
start_latency = click.option(
    "--start-latency",
    metavar="SPAN",
    callback=duration_callback,
    help=f"From binding to start.  [default: {START_S:g}s; implies --replay]",
)
sample_every = click.option(
    "--sample-every",
    metavar="SPAN",
    callback=positive_duration_callback,
    help="How often series.csv has a row.  [default: 1000 times over the arrivals]",
)
node_count = click.option(
    "--node-count",
    type=click.IntRange(min=1),
    help=f"As many nodes, of the same mix.  [default of the generated workload: {N_NODES}]",
)
pod_count = click.option(
    "--pod-count",
    type=click.IntRange(min=0),
    help=f"Pods of the generated workload.  [default: {N_PODS}]",
)
strict = click.option(
    "--strict",
    is_flag=True,
    help="Exit with 1 when a pod was not placed or not created, with 2 when kinds were ignored "
    "that may change the answer.",
)
REPLAY_PARAMETERS = (
    replay,
    speedup,
    until,
    churn,
    no_departures,
    bind_latency,
    start_latency,
    sample_every,
)


def replay_options(command: Any) -> Any:
    """Give a command all options of a replay."""
    for option in reversed(REPLAY_PARAMETERS):
        command = option(command)
    return command


def replay_options_of(given: dict[str, Any]) -> ReplayOptions | None:
    """The replay that the options ask for, None when none of them does."""
    chosen = dict(given)
    wanted = chosen.pop("replay")
    if not wanted and all(value is None or value is False for value in chosen.values()):
        return None
    from stowplan.simulation.cluster.node_churn import Churn
    from stowplan.simulation.cluster.simulated_cluster import Pace
    from stowplan.simulation.replay import ReplayOptions

    usual = Pace()
    bind_s, start_s = chosen["bind_latency"], chosen["start_latency"]
    return ReplayOptions(
        speedup=chosen["speedup"] or 1.0,
        until_s=chosen["until"],
        departures=not chosen["no_departures"],
        pace=Pace(
            usual.bind_s if bind_s is None else bind_s,
            usual.start_s if start_s is None else start_s,
            usual.grace_s,
        ),
        churn=None if chosen["churn"] is None else Churn(*chosen["churn"]),
        sample_s=chosen["sample_every"],
    )
