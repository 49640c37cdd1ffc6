"""What `stowplan simulate` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stowplan.insight.placement_failures import PlacementFailure
from stowplan.insight.pod_placement import Placement

FAILURES_SHOWN = 12
PODS_SHOWN = 2


def print_run(
    summary: dict[str, Any],
    failures: Sequence[PlacementFailure],
    console: Console,
    *,
    wide: bool = False,
) -> None:
    """The figures of one run. wide: pods that failed are listed one by one elsewhere."""
    if not summary["pods"]:
        console.print("No pod waits for a node.")
    console.print(
        f"[bold]{summary['placed']:,} of {summary['pods']:,} pods placed[/bold]"
        f" on {summary['nodes']:,} nodes, {summary['pods_per_s']:,.0f} pods/s"
    )
    if "waits_s" in summary:
        _print_times(summary, console)
    if failures and not wide:
        _print_failures(failures, console)
    _print_use(summary, console)
    if "extenders" in summary:
        _print_extenders(summary["extenders"], console)
    for note in summary["notes"]:
        console.print(Text(f"Note: {note}"), soft_wrap=True)


def _print_times(summary: dict[str, Any], console: Console) -> None:
    waits, preemption = summary["waits_s"], summary["preemption"]
    table = _table("WAIT", *(name.upper() for name in waits))
    if waits:
        table.add_row("", *(format_duration(seconds) for seconds in waits.values()))
        console.print(table)
    console.print(
        f"From the first arrival to the last end {format_duration(summary['makespan_s'])};"
        f" {preemption['victims']:,} pods evicted for {preemption['preemptors']:,} others,"
        f" {summary['nodes_left']:,} absences of nodes, {summary['restarts']:,} restarts"
    )


def _print_failures(failures: Sequence[PlacementFailure], console: Console) -> None:
    """A line per owner and reason, the commonest first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("PODS", justify="right")
    for name in ("NOT PLACED BECAUSE", "OWNER", "SUCH AS"):
        table.add_column(name, overflow="fold")
    for one in failures[:FAILURES_SHOWN]:
        owner = f"{one.namespace}/{one.owner}" if one.namespace else one.owner
        cells = (one.reason, owner, _examples(one.pods))
        table.add_row(f"{len(one.pods):,}", *map(Text, cells))
    hidden = failures[FAILURES_SHOWN:]
    if hidden:
        rest = sum(len(one.pods) for one in hidden)
        table.add_row(f"{rest:,}", Text(f"{len(hidden)} more groups (-o wide lists every pod)"))
    console.print(table)


def _examples(pods: Sequence[str]) -> str:
    more = len(pods) - PODS_SHOWN
    return ", ".join(pods[:PODS_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def print_placement_list(placements: Iterable[Placement], console: Console) -> None:
    """A line for every pod without a node, and why."""
    failed = [one for one in placements if not one.node]
    if not failed:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("NAMESPACE", "POD", "NOT PLACED BECAUSE"):
        table.add_column(name, overflow="fold")
    for one in failed:
        namespace, _, name = one.pod.partition("/")
        table.add_row(*map(Text, (namespace, name, one.message or one.reason)))
    console.print(table)


def _print_use(summary: dict[str, Any], console: Console) -> None:
    over_time = summary.get("over_time")
    columns = ("MEAN", "PEAK", "FRAGMENTED") if over_time else ()
    table = _table("RESOURCE", "REQUESTED", "OF", "SHARE", *columns)
    for resource, use in summary["utilisation"].items():
        if over_time is None and not use["requested"]:
            continue
        cells = [
            format_amount(resource, use["requested"]),
            format_amount(resource, use["allocatable"]),
            f"{use['share']:.1%}",
        ]
        if over_time is not None:
            used = over_time["utilisation"].get(resource, {"mean": 0.0, "peak": 0.0})
            if not used["peak"]:
                continue
            lost = over_time["fragmentation"].get(resource)
            cells += [f"{used['mean']:.1%}", f"{used['peak']:.1%}"]
            cells.append("" if lost is None else f"{lost['mean']:.1%}")
        table.add_row(resource, *cells)
    console.print(table)


def _print_extenders(extenders: list[dict[str, Any]], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("EXTENDER", overflow="fold")
    table.add_column("ANSWERED BY")
    table.add_column("CALLS")
    table.add_column("FAILED", justify="right")
    for one in extenders:
        calls = ", ".join(f"{count:,} {verb}" for verb, count in one["calls"].items())
        table.add_row(Text(one["url"]), Text(one["answered_by"]), calls, f"{one['failed']:,}")
    console.print(table)


def print_seeds(summary: dict[str, Any], console: Console) -> None:
    """The figures of several runs, side by side."""
    console.print(f"[bold]{len(summary['seeds'])} seeds[/bold]: {summary['seeds'][0]} and others")
    table = _table("FIGURE", "MEAN", "LEAST", "MOST")
    for name, spread in summary["figures"].items():
        table.add_row(name, *(f"{spread[key]:,.6g}" for key in ("mean", "min", "max")))
    console.print(table)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for column in others:
        table.add_column(column, justify="right")
    return table


def format_amount(resource: str, amount: int) -> str:
    """An amount in base units for people: whole CPUs, GiB, or a count."""
    if resource == "cpu":
        return f"{amount / 1000:,.0f}"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return f"{amount / 2**30:,.0f}Gi"
    return f"{amount:,}"


def format_duration(seconds: float) -> str:
    """A span of virtual time for people."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f}{unit}"
    return f"{seconds:,.3g}s"
