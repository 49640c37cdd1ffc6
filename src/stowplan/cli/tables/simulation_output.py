"""What `stowplan simulate` prints: tables, or figures and placements for other programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click
import msgspec
import yaml
from rich.text import Text

from stowplan.cli.tables.console import stdout_console
from stowplan.cli.tables.explanations import print_explanation
from stowplan.cli.tables.simulations import print_placement_list, print_run, print_seeds
from stowplan.insight.placement_failures import PlacementFailure
from stowplan.insight.pod_placement import Placement
from stowplan.simulation.results.seed_comparison import compare_seeds, files_of
from stowplan.simulation.simulate import Simulation

TREES = ("json", "yaml")


class OutputRequest(NamedTuple):
    """What is to be written where. out: a directory. namespace: show its pods only; None: all."""

    out: str | None
    output: str
    namespace: str | None = None


def print_simulation(runs: Mapping[int, Simulation], wanted: OutputRequest) -> None:
    """Print what came of one run, or of several that differ in their seed."""
    _warn(runs.values())
    only = next(iter(runs.values())) if len(runs) == 1 else None
    if wanted.output in TREES:
        click.echo(as_text(_tree(runs, only, wanted.namespace), wanted.output), nl=False)
    elif wanted.output == "csv":
        rows = {
            "" if only is not None else str(seed): _of_namespace(run.placements, wanted.namespace)
            for seed, run in runs.items()
        }
        click.echo(as_csv(rows), nl=False)
    else:
        _print(runs, only, wanted)


def _warn(runs: Iterable[Simulation]) -> None:
    """Print each warning about plugins once."""
    for text in dict.fromkeys(one for run in runs for one in run.summary.get("warnings", ())):
        click.echo(f"Warning: {text}", err=True)


def as_text(tree: dict[str, Any], output: str) -> str:
    """A tree as JSON or YAML, with a line end."""
    if output == "json":
        return json.dumps(tree, indent=2) + "\n"
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(tree, Dumper=dumper, sort_keys=False, allow_unicode=True, width=10**6)
    return text


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
        placements = {
            str(seed): _plain(_of_namespace(run.placements, namespace))
            for seed, run in runs.items()
        }
        return compare_seeds(runs) | {"placements": placements}
    tree = only.summary | {
        "failures": _plain(_failures(only, namespace)),
        "placements": _plain(_of_namespace(only.placements, namespace)),
    }
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
    """The failures, those of a namespace's pods only where one is named."""
    if namespace is None:
        return run.failures
    found = []
    for one in run.failures:
        pods = [pod for pod in one.pods if pod.partition("/")[0] == namespace]
        if pods:
            found.append(msgspec.structs.replace(one, pods=pods))
    return found


def _print(runs: Mapping[int, Simulation], only: Simulation | None, wanted: OutputRequest) -> None:
    console = stdout_console()
    if only is None:
        print_seeds(compare_seeds(runs), console)
    else:
        wide = wanted.output == "wide"
        print_run(only.summary, _failures(only, wanted.namespace), console, wide=wide)
        if wanted.namespace is not None:
            own = _of_namespace(only.placements, wanted.namespace)
            placed = sum(1 for one in own if one.node)
            text = f"In namespace {wanted.namespace}: {placed:,} of {len(own):,} pods placed"
            console.print(Text(text))
        if wide:
            print_placement_list(_of_namespace(only.placements, wanted.namespace), console)
        if only.explanation is not None:
            console.print()
            print_explanation(only.explanation, console)
    if wanted.out is not None:
        folder = wanted.out.rstrip("/") or wanted.out
        names = ", ".join(f"{folder}/{name}" for name in files_of(runs) if "/" not in name)
        more = "" if only is not None else f", and a folder for each of {len(runs)} seeds"
        console.print(Text(f"Written: {names}{more}"), soft_wrap=True)
