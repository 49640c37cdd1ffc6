"""`stowplan bench`: throughput and latency per case, beside kube-scheduler's."""

from __future__ import annotations

import sys

import click

from stowplan.cli import options
from stowplan.cli.command import Command, flag, grouped

ENGINES = ("compiled", "walk")
TEMPLATES = 200
"""Those of `stowplan.benchmarks`, whose modules import too much for a help text."""

EXAMPLES = """
# List the benchmark cases
stowplan bench --list

# Measure one case, five times
stowplan bench basic --repeat 5

# Measure what --record costs
stowplan bench basic --record --repeat 9

# Measure all cases and compare with an earlier report
stowplan bench -o json > new.json
stowplan bench --compare new.json
"""

_measured = grouped(
    flag(
        "--templates",
        type=click.IntRange(min=1),
        default=TEMPLATES,
        help="Number of pod templates, for the case `templates`.",
    ),
    flag(
        "--repeat",
        type=click.IntRange(min=1),
        default=3,
        help="Number of measurements, of which the median is shown; none begins after one minute.",
    ),
    flag("--stages", is_flag=True, help="Also measure the time per stage, in a run of its own."),
    flag(
        "--record",
        "records",
        is_flag=True,
        help="Also measure what a recording costs, and its size: runs with and without one, in "
        "turn.",
    ),
)


@click.command(name="bench", cls=Command, examples=EXAMPLES)
@click.argument("names", metavar="[CASE]...", nargs=-1)
@options.output("table", "json", "yaml")
@flag("--nodes", type=click.IntRange(min=1), help="Number of nodes.  [default: that of the case]")
@flag(
    "--pods",
    type=click.IntRange(min=1),
    help="Number of measured pods.  [default: that of the case]",
)
@flag(
    "--existing",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of plain pods placed before the measurement, for cases with lower-case names.",
)
@_measured
@flag(
    "--compare",
    metavar="OLD.json",
    type=click.Path(dir_okay=False),
    help="Show the ratio to an earlier report (-o json).",
)
@flag(
    "--engine",
    type=click.Choice(ENGINES),
    help="Placement engine.  [default: that which `stowplan run` uses]",
)
@flag("--in-process", is_flag=True, help="Measure in this process instead of one per case.")
@flag("--list", "listing", is_flag=True, help="List the cases and exit.")
def command(
    names: tuple[str, ...],
    output: str,
    nodes: int | None,
    pods: int | None,
    existing: int,
    templates: int,
    repeat: int,
    stages: bool,
    records: bool,
    compare: str | None,
    engine: str | None,
    in_process: bool,
    listing: bool,
) -> None:
    """Measure pods per second through the whole scheduler, without an API server.

    A CASE is a cluster and the pods that arrive; without one, all are measured. The time is that
    from the first call with decoded pods to the last binding, including queue, cache and effects,
    with at most 1,000 pods per call; decoding and confirmations are reported separately. The output
    has kube-scheduler's throughput beside ours.
    """
    from stowplan.cli.runs.bench import BenchSettings, list_cases, run_benchmarks

    if listing:
        list_cases()
        return
    settings = BenchSettings(nodes, pods, existing, templates, repeat, stages, engine, records)
    sys.exit(run_benchmarks(names, settings, output, compare, in_process=in_process))
