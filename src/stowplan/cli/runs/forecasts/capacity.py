"""What `stowplan capacity` does: read cluster and workload, answer, print."""

from __future__ import annotations

from typing import NamedTuple

import click

from stowplan.assembly.deciders import Deciders
from stowplan.cli.errors import invalid_argument
from stowplan.cli.options import TREES
from stowplan.cli.runs.cluster_source import ClusterSource, read_cluster_source
from stowplan.cli.simulate_options import read_autoscale_option
from stowplan.cli.tables.capacity import print_compact, print_count, print_defragment, print_fit
from stowplan.cli.tables.console import print_tree, stdout_console
from stowplan.driver.gc_settings import paused_collector
from stowplan.forecast.capacity import LIMIT, capacity, compact, fit_nodes
from stowplan.forecast.defragment import RATIO, defragment
from stowplan.inputs.cluster_reader import Cluster, read_workload


class CapacityRequest(NamedTuple):
    """The options of the command, by their names."""

    workload: tuple[str, ...]
    source: ClusterSource
    fit: bool
    compact: bool
    prices: tuple[str, ...]
    limit: int | None
    autoscale: str | None
    profile: str | None
    defragment: str | None = None
    ratio: float | None = None
    force: bool = False


def run_capacity(request: CapacityRequest, deciders: Deciders, output: str) -> int:
    """Print the answer; the exit code."""
    _check(request)
    if deciders.kueue is not None:
        # Imported here: most clusters have nothing of Kueue.
        from stowplan.cli.runs.kueue.kueue_capacity import check_options, run_kueue_capacity

        check_options(
            {
                "--fit": request.fit,
                "--compact": request.compact,
                "--defragment": request.defragment,
                "--autoscale": request.autoscale,
                "--profile": request.profile,
            }
        )
        return run_kueue_capacity(request.workload, request.source, deciders, output, request.limit)
    prices = _prices(request.prices)
    autoscale = read_autoscale_option(request.autoscale)
    cluster = read_cluster_source(request.source, deciders, notes=True)
    workload = None
    if request.workload:
        validate = request.source.validate or "auto"
        workload = read_workload(request.workload, cluster, validate=validate)
    with paused_collector():
        if request.defragment:
            return _run_defragment(request, cluster, workload, deciders, output)
        if request.compact:
            return _run_compact(request, cluster, prices, deciders, output)
        if request.fit:
            return _run_fit(request, cluster, workload, prices, deciders, output)
        assert workload is not None
        found = capacity(
            workload,
            cluster,
            config=deciders,
            profile=request.profile,
            limit=request.limit or LIMIT,
            autoscale=autoscale,
        )
    if output in TREES:
        print_tree(found, output)
    else:
        print_count(found, stdout_console())
    return 0 if any(unit.count for unit in found.units) else 1


def _check(request: CapacityRequest) -> None:
    """Raise a usage error for options that exclude each other."""
    chosen = {"fit": request.fit, "compact": request.compact, "defragment": request.defragment}
    modes = [f"--{name}" for name, is_chosen in chosen.items() if is_chosen]
    if len(modes) > 1:
        raise click.UsageError(f"{' and '.join(modes)} cannot be used together")
    if request.compact and request.workload:
        raise click.UsageError("--compact takes no FILE")
    if not (modes or request.workload):
        raise click.UsageError(
            "FILE is required: the pods to count (or use --fit, --compact or --defragment)"
        )
    if request.prices and not (request.fit or request.compact):
        raise click.UsageError("--price needs --fit or --compact")
    if request.autoscale is not None and modes:
        raise click.UsageError(f"--autoscale cannot be used with {modes[0]}")
    if request.limit is not None and modes:
        raise click.UsageError(f"--limit cannot be used with {modes[0]}")
    if not request.defragment and (request.ratio is not None or request.force):
        option = "--force" if request.ratio is None else "--ratio"
        raise click.UsageError(f"{option} needs --defragment")


def _prices(texts: tuple[str, ...]) -> dict[str, float]:
    """Prices by pool; raises a usage error, also for a pool that is named twice."""
    prices: dict[str, float] = {}
    for text in texts:
        pool, price = _price(text)
        if pool in prices:
            must = f'must name pool "{pool}" once: it is {prices[pool]:g} already'
            raise invalid_argument(text, "--price", must, click.get_current_context())
        prices[pool] = price
    return prices


def _price(text: str) -> tuple[str, float]:
    """Pool and price of POOL=AMOUNT; raises a usage error."""
    pool, _, number = text.rpartition("=")
    try:
        price = float(number)
    except ValueError:
        price = -1.0
    if not pool or not 0 < price < float("inf"):
        must = "must be POOL=AMOUNT with an amount greater than 0"
        raise invalid_argument(text, "--price", must, click.get_current_context())
    return pool, price


def _run_fit(
    request: CapacityRequest,
    cluster: Cluster,
    workload: Cluster | None,
    prices: dict[str, float],
    deciders: Deciders,
    output: str,
) -> int:
    found = fit_nodes(cluster, workload, prices=prices, config=deciders, profile=request.profile)
    if output in TREES:
        print_tree(found, output)
    else:
        print_fit(found, stdout_console(), has_prices=bool(prices))
    return 0 if found.pools else 1


def _run_compact(
    request: CapacityRequest,
    cluster: Cluster,
    prices: dict[str, float],
    deciders: Deciders,
    output: str,
) -> int:
    found = compact(cluster, prices=prices, config=deciders, profile=request.profile)
    if output in TREES:
        print_tree(found, output)
    else:
        print_compact(found, stdout_console(), has_prices=bool(prices))
    return 0 if found.steps else 1


def _run_defragment(
    request: CapacityRequest,
    cluster: Cluster,
    workload: Cluster | None,
    deciders: Deciders,
    output: str,
) -> int:
    assert request.defragment is not None
    found = defragment(
        cluster,
        workload,
        policy=request.defragment,
        ratio=RATIO if request.ratio is None else request.ratio,
        force=request.force,
        config=deciders,
        profile=request.profile,
    )
    if output in TREES:
        print_tree(found, output)
    else:
        print_defragment(found, stdout_console())
    return 0 if found.lowers else 1
