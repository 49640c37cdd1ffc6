"""What-if and preemption previews as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from stowplan.cli.tables.console import examples, plain_table
from stowplan.inputs.counts import count_of
from stowplan.insight.what_if.result import (
    BLOCKED,
    EFFECTS,
    EVICTED,
    AutoscalerUse,
    PodDifference,
    PreemptionPreview,
    PreemptionStep,
    WhatIf,
)
from stowplan.objects.quantity import format_quantity

GROUPS_LISTED = 20
PODS_LISTED = 3


def print_what_if(found: WhatIf, screen: Console, *, wide: bool = False) -> None:
    """Print the difference. wide: a line for every pod."""
    for change in found.changes:
        screen.print(Text(f"--{change.kind} {change.text}: {change.effect}"), soft_wrap=True)
    screen.print(Text(_headline(found), style="bold"), soft_wrap=True)
    if wide:
        _print_pods(found.pods, screen)
    else:
        _print_groups(found.pods, screen)
    _print_budgets(found, screen)
    _print_steps(found.preemptions, screen)
    _print_resources(found, screen)
    _print_queues(found, screen)
    if found.autoscaler is not None:
        before, after = found.autoscaler.before, found.autoscaler.after
        text = f"\nAutoscaler: {_nodes_added(after)} (before: {_nodes_added(before)})"
        screen.print(Text(text), soft_wrap=True)
    for note in found.notes:
        screen.print(Text(f"Note: {note}"), soft_wrap=True)


def _nodes_added(use: AutoscalerUse) -> str:
    """Nodes by pool, and what they cost."""
    pools = ", ".join(f"{number} {pool}" for pool, number in use.by_pool.items())
    text = f"{count_of(use.added, 'node')} added" + (f" ({pools})" if pools else "")
    if use.removed:
        text += f", {use.removed} removed"
    return text if use.cost is None else f"{text}, cost {use.cost:.2f}"


def _headline(found: WhatIf) -> str:
    figures = found.summary
    parts = [f"{int(figures[name]):,} {name}" for name in EFFECTS if figures.get(name)]
    pending = f"{int(figures['pending']):,} pending (before: {int(figures['pending_before']):,})"
    what = ", ".join(parts) if parts else "no pod is affected"
    return f"{what[:1].upper()}{what[1:]}; {pending}"


def _print_groups(pods: Sequence[PodDifference], screen: Console) -> None:
    """A line for each owner, effect and reason."""
    groups: dict[tuple[str, str, str], list[PodDifference]] = {}
    for one in pods:
        why = one.reason if not one.target or one.effect == BLOCKED else ""
        groups.setdefault((one.effect, one.owner, why), []).append(one)
    if not groups:
        return
    table = plain_table("", "EFFECT", "PODS", "OWNER", "EXAMPLES", "WHY", right=("PODS",))
    for (effect, owner, why), members in list(groups.items())[:GROUPS_LISTED]:
        names = examples([one.pod for one in members], PODS_LISTED)
        by = sorted({one.by for one in members if one.by}) if effect == EVICTED else []
        reason = f"by {examples(by, 1)}" if by else _why(why, members)
        table.add_row(effect, f"{len(members):,}", Text(owner), Text(names), Text(reason))
    screen.print(table)
    if len(groups) > GROUPS_LISTED:
        n_more = len(groups) - GROUPS_LISTED
        screen.print(Text(f"and {count_of(n_more, 'more group')}: -o wide lists every pod"))


def _why(reason: str, members: Sequence[PodDifference]) -> str:
    """A reason; where it is one word, as sessions have it, their message if it is the same for all,
    such as the gate of a queue with its amounts."""
    messages = {one.message for one in members}
    is_word = bool(reason) and " " not in reason
    return messages.pop() or reason if is_word and len(messages) == 1 else reason


def _print_pods(pods: Iterable[PodDifference], screen: Console) -> None:
    table = plain_table("", "EFFECT", "POD", "OWNER", "FROM", "TO", "WHY")
    for one in pods:
        why = _why(one.reason, [one]) or (f"by {one.by}" if one.by else "")
        row = (one.pod, one.owner, one.source or "-", one.target or "-", why)
        table.add_row(one.effect, *map(Text, row))
    screen.print(table)


def _print_budgets(found: WhatIf, screen: Console) -> None:
    if not found.budgets:
        return
    table = plain_table(
        "\nDisruption budgets", "BUDGET", "ALLOWED", "EVICTED", "WITHOUT NODE", "BLOCKED",
        right=("ALLOWED", "EVICTED", "WITHOUT NODE", "BLOCKED"),
    )  # fmt: skip
    for one in found.budgets:
        figures = map(str, (one.allowed, one.evicted, one.unplaced, one.blocked))
        table.add_row(Text(one.budget), *figures)
    screen.print(table)


def _print_steps(steps: Sequence[PreemptionStep], screen: Console, limit: int = 40) -> None:
    if not steps:
        return
    table = plain_table(
        "\nPreemptions", "PREEMPTOR", "NODE", "EVICTS", "PRIORITY", "RAN", "THEN", "BUDGETS BROKEN",
        right=("PRIORITY",),
    )  # fmt: skip
    rows = [(step, victim) for step in steps for victim in step.victims]
    for step, victim in rows[:limit]:
        again = "not created again" if victim.again is None else victim.again or "pending"
        if victim.is_loop:
            again = "evicted before: a loop"
        indent = "  " * (step.depth - 1)
        table.add_row(
            Text(f"{indent}{step.preemptor}"),
            Text(step.node),
            Text(victim.pod),
            f"{victim.priority} < {step.priority}",
            _duration(victim.ran_s),
            Text(again),
            Text(", ".join(victim.budgets)),
        )
    screen.print(table)
    if len(rows) > limit:
        screen.print(Text(f"and {count_of(len(rows) - limit, 'more victim')}: see -o json"))


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:.0f}s"


def _print_resources(found: WhatIf, screen: Console) -> None:
    table = plain_table(
        "\nNodes that are not cordoned", "RESOURCE", "REQUESTED", "ALLOCATABLE", "USE", "BEFORE",
        right=("REQUESTED", "ALLOCATABLE", "USE", "BEFORE"),
    )  # fmt: skip
    for name, one in found.resources.items():
        table.add_row(
            name,
            format_quantity(name, one.after.requested),
            format_quantity(name, one.after.allocatable),
            f"{one.after.share:.1%}",
            f"{one.before.share:.1%}",
        )
    screen.print(table)


def _print_queues(found: WhatIf, screen: Console) -> None:
    if not found.queues:
        return
    table = plain_table(
        "\nQueues", "QUEUE", "PODS", "BEFORE", "PENDING", "BEFORE", "REQUESTS", "BEFORE",
        right=("PODS", "BEFORE", "PENDING"),
    )  # fmt: skip
    for name, one in found.queues.items():
        table.add_row(
            Text(name),
            str(one.after.pods),
            str(one.before.pods),
            str(one.after.pending),
            str(one.before.pending),
            _requests(one.after.requested),
            _requests(one.before.requested),
        )
    screen.print(table)


def _requests(amounts: dict[str, int]) -> str:
    return " ".join(f"{name}={format_quantity(name, n)}" for name, n in amounts.items()) or "-"


def print_preview(found: PreemptionPreview, screen: Console, *, wide: bool = False) -> None:
    """Print who goes, and what follows. wide: every victim, every pod."""
    figures = found.summary
    placed = f"{int(figures['placed']):,} of {count_of(len(found.pods), 'pod')} placed"
    what = f"{count_of(int(figures['evicted']), 'pod')} evicted"
    ran = _duration(figures["ran_s"]) if figures["evicted"] else "0s"
    screen.print(Text(f"{placed}, {what}, {ran} of run time lost", style="bold"))
    most = len(found.pods) if wide else GROUPS_LISTED
    for one in found.pods[:most]:
        where = one.node or f"pending: {one.message or one.reason}"
        screen.print(Text(f"{one.pod}: {where}"), soft_wrap=True)
    if len(found.pods) > most:
        screen.print(Text(f"and {count_of(len(found.pods) - most, 'more pod')}"))
    _print_steps(found.steps, screen, 10**9 if wide else 40)
    if found.pending:
        names = examples([one.pod for one in found.pending], PODS_LISTED)
        screen.print(Text(f"Pending then: {names}"), soft_wrap=True)
    for key in found.loops:
        screen.print(Text(f"Loop: {key} is evicted twice"))
    for note in (*found.notes, *found.untried):
        screen.print(Text(f"Note: {note}"), soft_wrap=True)
