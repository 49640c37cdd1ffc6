"""Tables of `stowplan simulate`: figures of a run, pods that are not placed, several seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from stowplan.cli.tables.console import examples, plain_table
from stowplan.inputs.counts import count_of
from stowplan.insight.placement_failures import PlacementFailure
from stowplan.insight.pod_placement import Placement
from stowplan.objects.devices.gpu_cards import CARD_MILLI
from stowplan.simulation.node_autoscaler import NodeEvent

FAILURES_LISTED = 12
PODS_LISTED = 2


def print_run(
    summary: dict[str, Any],
    failures: Sequence[PlacementFailure],
    console: Console,
    *,
    wide: bool = False,
    namespaced: bool = False,
) -> None:
    """The figures of one run. wide: failed pods are listed one by one elsewhere. namespaced: the
    failures are of one namespace."""
    if not summary["pods"]:
        console.print("No pending pods found.")
    console.print(
        f"[bold]{summary['placed']:,} of {summary['pods']:,} pods placed[/bold]"
        f" on {count_of(summary['nodes'], 'node')}, {summary['pods_per_s']:,.0f} pods/s"
    )
    if "waits_s" in summary:
        _print_times(summary, console)
    if "autoscaler" in summary:
        _print_autoscaler(summary["autoscaler"], console)
    if failures and not wide:
        _print_failures(failures, console, namespaced=namespaced)
    _print_utilization(summary, console)
    if "gpu_cards" in summary:
        _print_cards(summary["gpu_cards"], console)
    if "extenders" in summary:
        _print_extenders(summary["extenders"], console)
    for note in summary["notes"]:
        console.print(Text(f"Note: {note}"), soft_wrap=True)


def _print_times(summary: dict[str, Any], console: Console) -> None:
    waits, preemption = summary["waits_s"], summary["preemption"]
    names = [name.upper() for name in waits]
    table = plain_table("", "PENDING TIME", *names, right=names)
    if waits:
        table.add_row("", *(format_duration(seconds) for seconds in waits.values()))
        console.print(table)
    console.print(
        f"Makespan {format_duration(summary['makespan_s'])};"
        f" {count_of(preemption['victims'], 'pod')} preempted"
        f" by {count_of(preemption['preemptors'], 'other')},"
        f" {count_of(summary['nodes_left'], 'node removal')},"
        f" {count_of(summary['restarts'], 'pod restart')}"
    )


def print_node_events(events: Sequence[NodeEvent], console: Console) -> None:
    """A line for each node that an autoscaler requested, started or removed."""
    if not events:
        return
    table = plain_table("", "TIME", "NODE", "POOL", "ACTION", "REASON", right=("TIME",))
    for one in events:
        cells = (format_duration(one.at_s), one.node, one.pool, one.action, one.reason)
        table.add_row(*map(Text, cells))
    console.print(table)


def _print_autoscaler(figures: dict[str, Any], console: Console) -> None:
    hours = sum(figures["node_hours"].values())
    console.print(
        f"Autoscaler: {count_of(figures['requested'], 'node')} added,"
        f" {figures['removed']:,} removed, at most {figures['peak_nodes']:,} at once,"
        f" {hours:,.1f} node hours, cost {figures['cost']:,.2f}"
    )


def _print_failures(
    failures: Sequence[PlacementFailure], console: Console, *, namespaced: bool
) -> None:
    """A line per owner and reason, the most frequent first."""
    columns = ("OWNER", "PODS", "REASON", "EXAMPLES")
    head = () if namespaced else ("NAMESPACE",)
    table = plain_table("", *head, *columns, right=("PODS",))
    for one in failures[:FAILURES_LISTED]:
        cells = (one.owner, f"{len(one.pods):,}", one.reason, examples(list(one.pods), PODS_LISTED))
        # Pods without an owner are one group in all namespaces.
        table.add_row(*map(Text, cells if namespaced else (one.namespace or "<none>", *cells)))
    hidden = failures[FAILURES_LISTED:]
    if hidden:
        rest = sum(len(one.pods) for one in hidden)
        text = f"{count_of(len(hidden), 'more group')} (-o wide lists every pod)"
        table.add_row(*[""] * len(head), "", f"{rest:,}", Text(text))
    console.print(table)


def print_placement_list(
    placements: Iterable[Placement], console: Console, *, namespaced: bool = False
) -> None:
    """A line for every pod without a node, and why. namespaced: all are of one namespace."""
    failed = unplaced(placements)
    if not failed:
        return
    table = plain_table("", *(() if namespaced else ("NAMESPACE",)), "NAME", "REASON")
    for one in failed:
        namespace, _, name = one.pod.partition("/")
        cells = (name, one.message or one.reason)
        table.add_row(*map(Text, cells if namespaced else (namespace, *cells)))
    console.print(table)


def unplaced(placements: Iterable[Placement]) -> list[Placement]:
    """The placements of pods without a node."""
    return [one for one in placements if not one.node]


def _print_utilization(summary: dict[str, Any], console: Console) -> None:
    over_time = summary.get("over_time")
    columns = ["REQUESTED", "ALLOCATABLE", "UTILIZATION"]
    columns += ["MEAN", "PEAK", "FRAGMENTATION"] if over_time else []
    table = plain_table("", "RESOURCE", *columns, right=columns)
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


CAUSE_TITLES = {
    "cpu_short": "CPU short",
    "gpu_short": "too little on the card",
    "both_short": "both short",
    "model": "another model wanted",
    "no_gpu_wanted": "no GPU wanted",
}


def _print_cards(cards: dict[str, Any], console: Console) -> None:
    """What is idle on the GPU cards, and why typical pods cannot use it."""
    idle, whole = cards["idle_milli"], cards["cards"] * CARD_MILLI
    console.print(
        f"GPU cards: {idle / CARD_MILLI:,.1f} of {cards['cards']:,} idle;"
        f" {cards['fragment_milli'] / CARD_MILLI:,.1f} of them"
        f" ({cards['of_capacity']:.1%} of all) are of no use to typical pods"
    )
    if not cards["fragment_milli"]:
        return
    table = plain_table("", "CAUSE", "CARDS", "OF ALL", right=("CARDS", "OF ALL"))
    for cause, milli in cards["by_cause"].items():
        if milli:
            share = f"{milli / whole:.1%}"
            table.add_row(CAUSE_TITLES[cause], f"{milli / CARD_MILLI:,.1f}", share)
    console.print(table)


def _print_extenders(extenders: list[dict[str, Any]], console: Console) -> None:
    table = plain_table("", "EXTENDER", "SIMULATED BY", "CALLS", "FAILED", right=("FAILED",))
    for one in extenders:
        calls = ", ".join(f"{count:,} {verb}" for verb, count in one["calls"].items())
        table.add_row(Text(one["url"]), Text(one["answered_by"]), calls, f"{one['failed']:,}")
    console.print(table)


def print_seeds(summary: dict[str, Any], console: Console) -> None:
    """Mean, minimum and maximum of the figures of several runs."""
    seeds = ", ".join(map(str, summary["seeds"]))
    console.print(f"[bold]{len(summary['seeds'])} seeds[/bold]: {seeds}")
    columns = ("MEAN", "MIN", "MAX")
    table = plain_table("", "METRIC", *columns, right=columns)
    for name, spread in summary["figures"].items():
        table.add_row(name, *(f"{spread[key]:,.6g}" for key in ("mean", "min", "max")))
    console.print(table)


def format_amount(resource: str, amount: int) -> str:
    """An amount in base units as text: CPUs, GiB, or a count."""
    if resource == "cpu":
        return f"{amount / 1000:,.0f}"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return f"{amount / 2**30:,.0f}Gi"
    return f"{amount:,}"


def format_duration(seconds: float) -> str:
    """A duration in seconds as text, in the largest unit of which there are two."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f}{unit}"
    return f"{seconds:,.3g}s"
