"""Output of `stowplan simulate` in each format."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click
import msgspec
from rich.text import Text

from stowplan.cli.options import TREES
from stowplan.cli.tables.console import print_names, stdout_console, tree_text
from stowplan.cli.tables.explanations import print_explanation
from stowplan.cli.tables.simulations import (
    print_node_events,
    print_placement_list,
    print_run,
    print_seeds,
    unplaced,
)
from stowplan.insight.placement_failures import PlacementFailure
from stowplan.insight.pod_placement import Placement
from stowplan.simulation.results.seed_comparison import compare_seeds, files_of
from stowplan.simulation.simulate import Simulation


class OutputRequest(NamedTuple):
    """Where and how results are written. out: a directory. namespace: None for all."""

    out: str | None
    output: str
    namespace: str | None = None


def print_simulation(runs: Mapping[int, Simulation], request: OutputRequest) -> None:
    """Print the results of one run, or of several that differ in their seed."""
    _warn(runs.values())
    own = _own_placements(runs, request.namespace)
    if request.namespace is not None and not any(own.values()):
        click.echo(f'No pending pods found in namespace "{request.namespace}".', err=True)
    only = next(iter(runs.values())) if len(runs) == 1 else None
    if request.output in TREES:
        click.echo(tree_text(_tree(runs, only, request.namespace), request.output), nl=False)
    elif request.output == "name":
        print_names("pod", unplaced_names(_own_placements(runs, request.namespace)))
    elif request.output == "csv":
        rows = _own_placements(runs, request.namespace)
        click.echo(as_csv(rows), nl=False)
    else:
        _print(runs, only, request)


def _warn(runs: Iterable[Simulation]) -> None:
    for text in dict.fromkeys(one for run in runs for one in run.summary.get("warnings", ())):
        click.echo(f"Warning: {text}", err=True)


def _own_placements(
    runs: Mapping[int, Simulation], namespace: str | None
) -> dict[str, Sequence[Placement]]:
    """Seed -> placements; the seed of the only run is ""."""
    return {
        str(seed) if len(runs) > 1 else "": _of_namespace(run.placements, namespace)
        for seed, run in runs.items()
    }


def unplaced_names(placements: Mapping[str, Sequence[Placement]]) -> list[str]:
    """Names of the pods that have no node in some run, each once."""
    keys = dict.fromkeys(one.pod for run in placements.values() for one in unplaced(run))
    return [key.rpartition("/")[2] for key in keys]


def as_csv(placements: Mapping[str, Sequence[Placement]]) -> str:
    """Placements as CSV with a header. placements: by seed; a seed "" has no column."""
    first = next((one for run in placements.values() for one in run), Placement(""))
    names = [field.name for field in msgspec.structs.fields(type(first))]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    seeded = "" not in placements
    writer.writerow(["seed", *names] if seeded else names)
    for seed, run in placements.items():
        for placement in run:
            row = msgspec.structs.astuple(placement)
            writer.writerow([seed, *row] if seeded else row)
    return file.getvalue()


def _tree(
    runs: Mapping[int, Simulation], only: Simulation | None, namespace: str | None
) -> dict[str, Any]:
    if only is None:
        own = _own_placements(runs, namespace)
        placements = {seed: _plain(run) for seed, run in own.items()}
        return compare_seeds(runs) | {"placements": placements}
    tree = only.summary | {
        "failures": _plain(_failures(only, namespace)),
        "placements": _plain(_of_namespace(only.placements, namespace)),
    }
    if only.node_events:
        tree["node_events"] = _plain(only.node_events)
    if only.explanation is not None:
        tree["explanation"] = msgspec.to_builtins(only.explanation)
    return tree


def _plain(values: Iterable[msgspec.Struct]) -> list[Any]:
    return [msgspec.to_builtins(value) for value in values]


def _of_namespace(placements: Sequence[Placement], namespace: str | None) -> Sequence[Placement]:
    if namespace is None:
        return placements
    return [one for one in placements if one.pod.partition("/")[0] == namespace]


def _failures(run: Simulation, namespace: str | None) -> list[PlacementFailure]:
    """The failures of all pods, or of those of a namespace."""
    if namespace is None:
        return run.failures
    found = []
    for one in run.failures:
        pods = [pod for pod in one.pods if pod.partition("/")[0] == namespace]
        if pods:
            found.append(msgspec.structs.replace(one, pods=pods))
    return found


def _print(runs: Mapping[int, Simulation], only: Simulation | None, request: OutputRequest) -> None:
    console = stdout_console()
    if only is None:
        print_seeds(compare_seeds(runs), console)
    else:
        wide = request.output == "wide"
        namespaced = request.namespace is not None
        failures = _failures(only, request.namespace)
        print_run(only.summary, failures, console, wide=wide, namespaced=namespaced)
        if namespaced:
            own = _of_namespace(only.placements, request.namespace)
            placed = sum(1 for one in own if one.node)
            text = f"In namespace {request.namespace}: {placed:,} of {len(own):,} pods placed"
            console.print(Text(text))
        if wide:
            own = _of_namespace(only.placements, request.namespace)
            print_placement_list(own, console, namespaced=namespaced)
            print_node_events(only.node_events, console)
        if only.explanation is not None:
            console.print()
            print_explanation(only.explanation, console)
    if request.out is not None:
        folder = request.out.rstrip("/") or request.out
        names = ", ".join(f"{folder}/{name}" for name in files_of(runs) if "/" not in name)
        more = "" if only is not None else f", and a directory for each of {len(runs)} seeds"
        console.print(Text(f"Written: {names}{more}"), soft_wrap=True)
