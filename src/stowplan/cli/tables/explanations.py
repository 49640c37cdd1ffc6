"""An explanation as text: the decision, the reasons of nodes that do not fit, and the scores."""

from __future__ import annotations

from collections import Counter, defaultdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stowplan.cli.tables.changes import print_change_table
from stowplan.cli.tables.console import examples, plain_table
from stowplan.cycle.explanation import (
    SIMULATED,
    Explanation,
    NodeExplanation,
    NodeScore,
    SimulationOutcome,
    StrandedCards,
)
from stowplan.objects.devices.gpu_cards import CARD_MILLI

NODES_LISTED = 20
NAMES_LISTED = 4
DETAILS_LISTED = 3
CELL_WIDTH = 9
STRANDED_LISTED = 5


def print_explanation(explanation: Explanation, screen: Console, *, wide: bool = False) -> None:
    """Print for a terminal; wide tables fold to its width. wide: a line for every node."""
    screen.print(_headline(explanation))
    for note in explanation.notes:
        screen.print(Text(f"Note: {note}"))
    if explanation.state == "pending":
        screen.print(Text(_basis_text(explanation), style="dim"))
    if explanation.message:
        screen.print(Text(explanation.message, style="dim"))
    outcome = explanation.simulation
    if outcome is not None and explanation.evaluated_on != SIMULATED:
        screen.print(Text(_simulation_comparison(explanation, outcome)), soft_wrap=True)
    elif outcome is not None and outcome.message not in ("", explanation.message):
        # A simulation calls extenders, an explanation does not.
        screen.print(Text(outcome.message, style="dim"))
    if explanation.pod_refusal is not None:
        refusal = explanation.pod_refusal
        screen.print(Text(f"{refusal.plugin or 'PreFilter'}: {', '.join(refusal.reasons)}"))
    rejecting = [node for node in explanation.nodes if not node.fits]
    if rejecting and explanation.pod_refusal is None:
        by_node = wide or len(rejecting) <= NODES_LISTED
        screen.print(_by_node(rejecting) if by_node else _by_reason(rejecting))
    is_compared = explanation.evaluated_on != SIMULATED and explanation.state == "pending"
    is_refused_later = is_compared and outcome is not None and _disagrees(explanation, outcome)
    # Where no plugin scored the pod every node has 0.
    if explanation.scores and explanation.scores[0].plugins and (wide or not is_refused_later):
        _print_scores(explanation.scores, explanation.current_node, screen)
    if explanation.stranded_cards:
        _print_stranded(explanation.stranded_cards, screen, wide=wide)
    if explanation.preemption is not None:
        screen.print(_preemption(explanation))
    title = "\nSmallest changes that let it run"
    print_change_table(explanation.changes, explanation.not_searched, screen, title)


def _print_stranded(cards: tuple[StrandedCards, ...], screen: Console, *, wide: bool) -> None:
    """What is idle of the GPU cards, and what of it is of no use, by cause; the worst nodes."""
    totals: Counter[str] = Counter()
    for one in cards:
        totals.update(one.by_cause)
    causes = ", ".join(_in_cards(cause, milli) for cause, milli in totals.most_common())
    idle = sum(one.idle_milli for one in cards) / CARD_MILLI
    lost = sum(totals.values()) / CARD_MILLI
    text = f"GPU cards: {idle:,.1f} idle, {lost:,.1f} of them of no use to expected pods"
    screen.print(Text(f"\n{text}{f': {causes}' if causes else ''}"))
    found = [one for one in cards if one.by_cause]
    if not found:
        return
    table = plain_table("", "NODE", "IDLE", "OF NO USE", right=("IDLE",))
    found.sort(key=lambda one: -sum(one.by_cause.values()))
    for one in found if wide else found[:STRANDED_LISTED]:
        parts = ", ".join(_in_cards(cause, milli) for cause, milli in one.by_cause.items())
        table.add_row(one.node, f"{one.idle_milli / CARD_MILLI:,.1f}", parts)
    screen.print(table)


def _in_cards(cause: str, milli: float) -> str:
    return f"{cause.replace('_', ' ')} {milli / CARD_MILLI:,.2f}"


def _headline(explanation: Explanation) -> Text:
    fitting = sum(node.fits for node in explanation.nodes)
    where = f"{explanation.pod} ({explanation.scheduler_name}): "
    if explanation.state == "gated":
        return Text(where + "pending; scheduling gated, not attempted", style="bold")
    count = f"{fitting} of {len(explanation.nodes)} nodes fit"
    if explanation.evaluated_on == SIMULATED:
        result = f"scheduled on {explanation.node}" if explanation.node else "unschedulable"
        return Text(f"{where}{result} in the simulation; {count}", style="bold")
    if explanation.state == "placed":
        now = f"be scheduled on {explanation.node}" if explanation.node else "be unschedulable"
        text = f"on {explanation.current_node}; if scheduled now it would {now}, {count}"
        return Text(where + text, style="bold")
    outcome = explanation.simulation
    if outcome is not None and _disagrees(explanation, outcome):
        then = "one does" if outcome.node else "none does"
        text = f"pending; {count} it alone, {then} once the pods before it are scheduled"
        return Text(where + text, style="bold")
    if explanation.node:
        return Text(
            f"{where}pending; would be scheduled on {explanation.node}, {count}", style="bold"
        )
    return Text(f"{where}pending; {count}", style="bold")


def _disagrees(explanation: Explanation, outcome: SimulationOutcome) -> bool:
    """Whether a pod has a node either alone or after the pods before it."""
    return not outcome.not_run and bool(outcome.node) != bool(explanation.node)


def _basis_text(explanation: Explanation) -> str:
    outcome = explanation.simulation
    if explanation.evaluated_on != SIMULATED or outcome is None:
        return "evaluated on the cluster as read, before other pending pods are scheduled"
    return f"evaluated in the simulation{_after(outcome)}"


def _after(outcome: SimulationOutcome) -> str:
    """How many pods a simulation has attempted before, "" for none."""
    if not outcome.tried_before:
        return ""
    counts = f"{outcome.placed_before:,} of {outcome.tried_before:,}"
    return f", after {counts} earlier pods were scheduled"


def _simulation_comparison(explanation: Explanation, outcome: SimulationOutcome) -> str:
    """The result of a simulation for the pod, and whether it differs."""
    by = f" --profile {outcome.profile}" if outcome.profile else ""
    command = f"`stowplan simulate{by}`"
    if outcome.not_run:
        return f"Not compared with {command}: {outcome.not_run} (--after-simulation compares)"
    after = _after(outcome)
    if outcome.node:
        return f"{command} schedules it on {outcome.node}{after}"
    if explanation.node:
        more = "--after-simulation explains it"
        return f"{command} does not schedule it{after} ({more}): {outcome.message}"
    return f"{command} does not schedule it either{after}"


def _by_node(rejecting: list[NodeExplanation]) -> Table:
    table = plain_table("\nNodes that do not fit", "NODE", "PLUGIN", "REASON", "DETAILS")
    for node in rejecting:
        refusals = node.failing or ((node.first,) if node.first else ())
        for index, refusal in enumerate(refusals):
            table.add_row(
                Text(node.name if index == 0 else ""),
                Text(refusal.plugin),
                Text(", ".join(refusal.reasons)),
                Text("; ".join(refusal.details)),
            )
    return table


def _by_reason(rejecting: list[NodeExplanation]) -> Table:
    groups: dict[tuple[str, str], list[NodeExplanation]] = defaultdict(list)
    for node in rejecting:
        if node.first is not None:
            groups[node.first.plugin, ", ".join(node.first.reasons)].append(node)
    table = plain_table(
        "\nNodes that do not fit, by first reason", "NODES", "PLUGIN", "REASON", "EXAMPLES",
        right=("NODES",),
    )  # fmt: skip
    for (plugin, reason), nodes in sorted(groups.items(), key=lambda g: -len(g[1])):
        table.add_row(str(len(nodes)), Text(plugin), Text(reason), Text(_node_examples(nodes)))
    return table


def _node_examples(nodes: list[NodeExplanation]) -> str:
    names = []
    for node in nodes:
        details = "; ".join(node.first.details) if node.first else ""
        names.append(f"{node.name} ({details})" if details else node.name)
    return examples(names, DETAILS_LISTED)


def _print_scores(scores: tuple[NodeScore, ...], current: str, screen: Console) -> None:
    """A row per plugin and a column per node; nodes with long names are numbered."""
    listed = scores[:NAMES_LISTED]
    listed += tuple(score for score in scores[NAMES_LISTED:] if score.name == current)
    rows = [f"{name} x{score.weight}" for name, score in listed[0].plugins.items()]
    names = [score.name for score in listed]
    width = max(map(len, rows)) + sum(2 + max(len(name), CELL_WIDTH) for name in names)
    if width > screen.width:
        names = [f"({number})" for number in range(1, len(listed) + 1)]
    # Not as the title of the table, which folds to its width.
    screen.print(Text("\nScores: final (raw); final is the normalized score times the weight"))
    table = plain_table("", "PLUGIN")
    table.columns[0].no_wrap = True
    for name in names:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for plugin, row in zip(listed[0].plugins, rows, strict=True):
        cells = [score.plugins[plugin] for score in listed]
        table.add_row(Text(row), *(f"{cell.final} ({cell.raw})" for cell in cells))
    table.add_row("total", *(str(score.total) for score in listed), style="bold")
    screen.print(table)
    for name, score in zip(names, listed, strict=True):
        if name != score.name:
            screen.print(Text(f"{name} {score.name}"))
    for score in listed:
        for line in (line for one in score.plugins.values() for line in one.details):
            screen.print(Text(f"{score.name}: {line}"))


def _preemption(explanation: Explanation) -> Text:
    preemption = explanation.preemption
    assert preemption is not None
    if preemption.node:
        victims = ", ".join(preemption.victims)
        return Text(f"\nPreemption on {preemption.node} would help: victims {victims}")
    return Text("\nPreemption is not helpful for scheduling")
