"""`stowplan experiment`: a matrix of workloads, policies, options and seeds."""

from __future__ import annotations

import sys
from typing import Any

import click

from stowplan.cli.command import Command, flag, grouped
from stowplan.cli.completion import complete_only
from stowplan.cli.simulate_options import positive_duration_callback

EXAMPLES = """
# Run every policy on every workload with every seed of a plan, on all processors
stowplan experiment plan.yaml --out results

# Reproduce a run of the published table of GPU sharing policies
stowplan experiment examples/fgd.yaml --traces openb --only policy=FGD --only seed=42 --out fgd

# Fail in CI where the second policy has longer waits than the first
stowplan experiment plan.yaml --out results --fail-if 'wait_p99: B > A by 5%'

# Run a quarter of it in each task of a Slurm array of four
stowplan experiment plan.yaml --shard auto --out /shared/results

# Run it on a Dask cluster
stowplan experiment plan.yaml --dask tcp://scheduler:8786 --out results
"""


def memory_callback(ctx: click.Context, param: click.Parameter, value: str | None) -> int:
    """The bytes of an option that is a quantity of memory, 0 without it."""
    if value is None:
        return 0
    from stowplan.objects.quantity import QuantityError, amount

    try:
        found = amount("memory", value)
    except QuantityError:
        found = 0
    if found <= 0:
        raise click.BadParameter("must be a quantity such as 512Mi or 2Gi", ctx, param)
    return found


_executed = grouped(
    flag(
        "--jobs",
        metavar="N",
        type=click.IntRange(min=1),
        help="Number of processes. Results do not depend on it.  [default: number of processors]",
    ),
    flag(
        "--shard",
        metavar="I/N",
        default="",
        help="Run part I of N, with the same --out in a shared directory. auto takes both from a "
        "Slurm array, auto/N the part from a Kubernetes Indexed Job.  [default: the whole]",
    ),
    flag(
        "--dask",
        metavar="ADDRESS",
        default="",
        help="Run on the Dask cluster with this scheduler, as tcp://HOST:8786; needs "
        "stowplan[dask].  [default: this machine]",
    ),
    flag(
        "--timeout",
        metavar="DURATION",
        callback=positive_duration_callback,
        help="Fail a run that takes longer, as 90s or 15m.  [default: no limit]",
    ),
    flag(
        "--memory",
        metavar="QUANTITY",
        callback=memory_callback,
        help="Limit of a process's address space, as 2Gi.  [default: no limit]",
    ),
)
"""Where and how runs are executed."""

_written = grouped(
    flag(
        "--no-report",
        is_flag=True,
        help="Do not write report.html. `stowplan report DIR` does so later.",
    ),
    flag(
        "--parquet",
        is_flag=True,
        help="Write tables of measures, pods and series as Parquet files; needs stowplan[parquet].",
    ),
)
"""What is written beside the runs."""


@click.command(name="experiment", cls=Command, examples=EXAMPLES)
@click.argument("plan", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True))
@flag(
    "--out",
    metavar="DIR",
    required=True,
    type=click.Path(file_okay=False),
    help="Directory of the results. Runs that are there already are not run again.",
)
@flag(
    "--traces",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Directory in which trace files are looked for, after that of FILE; the OpenB workloads "
    "are found there by name.  [default: that of FILE only]",
)
@flag(
    "--only",
    metavar="KEY=VALUE",
    multiple=True,
    shell_complete=complete_only,
    help="Run only a part: KEY is workload, policy, seed or an option of the plan. Repeatable: any "
    "value of the same key, and all keys.  [default: all runs]",
)
@_executed
@_written
@flag(
    "--fail-if",
    metavar="EXPR",
    multiple=True,
    help="Exit with 1 if this holds for some workload and options, as 'wait_p99: B > A by 5%': A "
    "is the first policy, B the second. Repeatable.",
)
def command(**given: Any) -> None:
    """Run workloads x policies x options x seeds, and compare the policies.

    FILE is a plan: it names traces, manifests or generated workloads, scheduler configurations and
    plugin files, options of a replay, and seeds. Each run is kept as soon as it is finished, by a
    hash of all that goes into it; an interrupted experiment goes on where it was. A run that fails
    is reported and does not stop the others. DIR/report.html shows the results.
    """
    from stowplan.cli.runs.experiments.execute_plan import ExperimentRequest, execute_plan

    sys.exit(execute_plan(ExperimentRequest(**given)))
