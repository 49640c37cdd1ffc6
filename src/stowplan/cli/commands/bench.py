"""`stowplan bench`: how fast the scheduler is, shape by shape, beside kube-scheduler's figures."""

from __future__ import annotations

import sys

import click

from stowplan.cli import options

ENGINES = ("compiled", "walk")
TEMPLATES = 200
"""Those of `stowplan.sim`'s modules of the bench, which import too much for a help text."""


@click.command(name="bench")
@click.argument("names", metavar="[SHAPE]...", nargs=-1)
@options.output
@click.option("--nodes", type=click.IntRange(min=1), help="Nodes, instead of the shape's own.")
@click.option("--pods", type=click.IntRange(min=1), help="Pods that are measured, likewise.")
@click.option(
    "--existing",
    type=click.IntRange(min=0),
    default=0,
    help="Plain pods that are placed beforehand, for the shapes in lower case.",
)
@click.option(
    "--templates",
    type=click.IntRange(min=1),
    default=TEMPLATES,
    show_default=True,
    help="Kinds of pods, for the shape of this name.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Measure so often and show the median; once a minute has passed, no more.",
)
@click.option("--stages", is_flag=True, help="Say where the time goes, in a run of its own.")
@click.option(
    "--compare", metavar="OLD.json", type=click.Path(dir_okay=False), help="Say what has changed."
)
@click.option("--engine", type=click.Choice(ENGINES), help="Decide with this.")
@click.option("--in-process", is_flag=True, help="Do not start a process for each shape.")
@click.option("--list", "listing", is_flag=True, help="List the shapes and end.")
def command(
    names: tuple[str, ...],
    output: str,
    nodes: int | None,
    pods: int | None,
    existing: int,
    templates: int,
    repeat: int,
    stages: bool,
    compare: str | None,
    engine: str | None,
    in_process: bool,
    listing: bool,
) -> None:
    """Measure pods per second through the whole scheduler, without an API server.

    A SHAPE is a cluster and what comes to it; without one all are measured. From the first call
    with decoded pods to the last binding, queue, cache and effects included, at most 1,000 pods
    a call; decoding and confirmations are reported apart.
    """
    from stowplan.cli.runs.bench import BenchSettings, list_shapes, run_benchmarks

    if listing:
        list_shapes()
        return
    settings = BenchSettings(nodes, pods, existing, templates, repeat, stages, engine)
    sys.exit(run_benchmarks(names, settings, output, compare, in_process=in_process))
