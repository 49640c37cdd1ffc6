"""Capacity as text: units that fit, nodes to buy, nodes to empty, pods to move."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.text import Text

from stowplan.cli.tables.console import examples, plain_table
from stowplan.inputs.counts import count_of
from stowplan.insight.capacity.card_moves import DefragmentPlan
from stowplan.insight.capacity.compact import CompactPlan
from stowplan.insight.capacity.count import CapacityCount
from stowplan.insight.capacity.node_fit import NodeFit
from stowplan.objects.devices.gpu_cards import CARD_MILLI

NAMES_LISTED = 3
KEPT_LISTED = 5


def print_count(found: CapacityCount, screen: Console) -> None:
    """A line per unit, and below what the next one lacks."""
    table = plain_table("", "NAME", "UNIT", "FITS", "PODS", "BY POOL", right=("FITS", "PODS"))
    for unit in found.units:
        pods = f"{unit.kind} of {unit.pods_per_unit}" if unit.pods_per_unit > 1 else unit.kind
        count = f"{unit.count:,}{' or more' if unit.is_limited else ''}"
        pools = ", ".join(f"{name}: {n:,}" for name, n in unit.pools.items())
        table.add_row(unit.name, pods, count, f"{unit.count * unit.pods_per_unit:,}", Text(pools))
    screen.print(table)
    for unit in found.units:
        if unit.reasons:
            reasons = ", ".join(f"{n:,} {reason}" for reason, n in unit.reasons.items())
            screen.print(Text(f"No more of {unit.name}: {unit.message or reasons}"))
    _print_notes((), found.notes, screen)


def print_fit(found: NodeFit, screen: Console, *, has_prices: bool) -> None:
    """A line per pool, and the bound."""
    for pod, reason in found.unplaceable.items():
        screen.print(Text(f"{pod} runs on no new node: {reason}"))
    if not found.pools:
        if not found.unplaceable:
            screen.print(Text("No nodes were found on which the workload runs", style="bold"))
        _print_notes(found.not_searched, found.notes, screen)
        return
    head = ["POOL", "NODES", "PODS"] + (["PRICE", "COST"] if has_prices else [])
    table = plain_table("", *head, right=head[1:])
    for one in found.pools:
        cells = [one.pool, f"{one.nodes:,}", f"{one.pods:,}"]
        if has_prices:
            cells += [f"{one.price:g}", f"{one.price * one.nodes:.2f}"]
        table.add_row(*map(Text, cells))
    screen.print(table)
    nodes = count_of(found.nodes, "node")
    cost = f" for {found.cost:.2f}" if has_prices else ""
    screen.print(Text(f"{count_of(found.pods, 'pod')} run on {nodes}{cost}", style="bold"))
    bound = f"{found.lower_bound:.2f}" if has_prices else count_of(int(found.lower_bound), "node")
    if found.gap <= 1e-9:
        screen.print(Text(f"No scheduler can do with less than {bound}"))
        return
    line = f"No scheduler can do with less than {bound}: at most {found.gap:.1%} above the least"
    if found.is_least:
        line += "; this one leaves pods out on all cheaper nodes"
    screen.print(Text(line))
    _print_notes(found.not_searched, found.notes, screen)


def print_compact(found: CompactPlan, screen: Console, *, has_prices: bool) -> None:
    """A line per step, the commands, and why other nodes stay."""
    n_steps, nodes = len(found.steps), count_of(found.nodes, "node")
    saved = f", which saves {found.saved:.2f}" if has_prices and found.steps else ""
    screen.print(Text(f"{n_steps:,} of {nodes} can be emptied{saved}", style="bold"))
    if found.steps:
        table = plain_table("", "STEP", "NODE", "POOL", "PODS", "MOVE TO", right=("STEP", "PODS"))
        for number, step in enumerate(found.steps, 1):
            homes = Counter(move.node for move in step.moves)
            text = examples([f"{name} ({n})" for name, n in homes.items()], NAMES_LISTED)
            cells = [str(number), step.node, step.pool, str(len(step.moves)), text]
            table.add_row(*map(Text, cells))
        screen.print(table)
        screen.print(Text("Run in this order:", style="bold"))
        for line in (found.cordon, *(line for step in found.steps for line in step.commands)):
            screen.print(Text(f"  {line}"), soft_wrap=True)
    if found.blockers:
        screen.print(Text("Nodes that stay:", style="bold"))
        by_reason: dict[str, list[str]] = {}
        for one in found.blockers:
            by_reason.setdefault(one.reason, []).append(one.node)
        for reason, names in by_reason.items():
            screen.print(Text(f"  {examples(names, NAMES_LISTED)}: {reason}"), soft_wrap=True)
    _print_notes(found.not_searched, found.notes, screen)


def print_defragment(found: DefragmentPlan, screen: Console) -> None:
    """What is of no use before and after, a line per move, the commands, and which pods stay."""
    before, after = found.before, found.after
    idle = before.idle_milli / CARD_MILLI
    screen.print(
        Text(
            f"GPU cards: {idle:,.1f} idle; of no use to typical pods: "
            f"{before.fragment_milli / CARD_MILLI:,.1f} ({before.of_idle:.1%})"
        )
    )
    if found.lowers:
        line = (
            f"{count_of(len(found.moves), 'move')} of {found.pods:,} pods: of no use "
            f"{after.fragment_milli / CARD_MILLI:,.1f} ({after.of_idle:.1%})"
        )
        screen.print(Text(line, style="bold"))
        table = plain_table("", "MOVE", "POD", "FROM", "CARDS", "TO", "CARDS", right=("MOVE",))
        for number, move in enumerate(found.moves, 1):
            old, new = (",".join(some) or "-" for some in (move.from_cards, move.cards))
            cells = (str(number), move.pod, move.from_node, old, move.node, new)
            table.add_row(*map(Text, cells))
        screen.print(table)
        screen.print(Text("Run in this order:", style="bold"))
        for line in found.commands:
            screen.print(Text(f"  {line}"), soft_wrap=True)
    else:
        screen.print(Text("No moves were found that make more of them of use", style="bold"))
    if found.kept:
        screen.print(Text("Pods that stay:", style="bold"))
        for one in found.kept[:KEPT_LISTED]:
            screen.print(Text(f"  {one.reason}"), soft_wrap=True)
        if len(found.kept) > KEPT_LISTED:
            screen.print(Text(f"  and {len(found.kept) - KEPT_LISTED:,} more (-o yaml lists all)"))
    _print_notes((), found.notes, screen)


def _print_notes(not_searched: tuple[str, ...], notes: tuple[str, ...], screen: Console) -> None:
    if not_searched:
        screen.print(Text(f"Not searched: {'; '.join(not_searched)}", style="dim"))
    for note in notes:
        screen.print(Text(f"Note: {note}", style="dim"))
