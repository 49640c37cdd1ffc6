"""An explanation as text: who, where, why not elsewhere, and what each rule thought."""

from __future__ import annotations

from collections import defaultdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stowplan.cycle.explanation import (
    SIMULATED,
    Explanation,
    NodeExplanation,
    NodeScore,
    SimulationOutcome,
)

NODES_LISTED = 20
NAMES_SHOWN = 4
DETAILS_SHOWN = 3
CELL_WIDTH = 9


def print_explanation(explanation: Explanation, screen: Console) -> None:
    """Print for a terminal; wide tables fold to its width."""
    screen.print(_headline(explanation))
    for note in explanation.notes:
        screen.print(Text(f"Note: {note}"))
    if explanation.state == "pending":
        screen.print(Text(_verdict_text(explanation), style="dim"))
    if explanation.message:
        screen.print(Text(explanation.message, style="dim"))
    outcome = explanation.simulation
    if outcome is not None and explanation.evaluated_on != SIMULATED:
        screen.print(Text(_simulation_comparison(explanation, outcome)), soft_wrap=True)
    elif outcome is not None and outcome.message not in ("", explanation.message):
        # Extenders have their say in a simulation, not in an explanation.
        screen.print(Text(outcome.message, style="dim"))
    if explanation.pod_refusal is not None:
        refusal = explanation.pod_refusal
        screen.print(Text(f"{refusal.plugin or 'PreFilter'}: {', '.join(refusal.reasons)}"))
    refused = [node for node in explanation.nodes if not node.fits]
    if refused and explanation.pod_refusal is None:
        few = len(refused) <= NODES_LISTED
        screen.print(_by_node(refused) if few else _by_reason(refused))
    # Where no rule scored the pod every node has 0.
    if explanation.scores and explanation.scores[0].plugins:
        _print_scores(explanation.scores, explanation.current_node, screen)
    if explanation.preemption is not None:
        screen.print(_preemption(explanation))


def _headline(explanation: Explanation) -> Text:
    fitting = sum(node.fits for node in explanation.nodes)
    where = f"{explanation.pod} ({explanation.scheduler_name}): "
    if explanation.state == "gated":
        return Text(where + "scheduling gated, not tried", style="bold")
    count = f"{fitting} of {len(explanation.nodes)} nodes fit"
    if explanation.evaluated_on == SIMULATED:
        there = f"placed on {explanation.node}" if explanation.node else "refused"
        return Text(f"{where}{there} in the simulation; {count}", style="bold")
    if explanation.state == "placed":
        now = explanation.node or "nowhere"
        text = f"on {explanation.current_node}; placed again it would go to {now}, {count}"
        return Text(where + text, style="bold")
    if explanation.node:
        return Text(f"{where}pending; it would go to {explanation.node}, {count}", style="bold")
    return Text(f"{where}pending; {count}", style="bold")


def _verdict_text(explanation: Explanation) -> str:
    outcome = explanation.simulation
    if explanation.evaluated_on != SIMULATED or outcome is None:
        return "judged on the cluster as given, before other pending pods are placed"
    before = f"{outcome.placed_before:,} of {outcome.tried_before:,} pods before it placed"
    return f"judged in the simulation, {before}"


def _simulation_comparison(explanation: Explanation, outcome: SimulationOutcome) -> str:
    """What a simulation makes of the pod, and whether that is another answer."""
    by = f" --profile {outcome.profile}" if outcome.profile else ""
    command = f"`stowplan simulate{by}`"
    if outcome.not_run:
        return f"Not compared with {command}: {outcome.not_run} (--after-simulation does it)"
    before = f"{outcome.placed_before:,} of {outcome.tried_before:,} pods before it placed"
    if outcome.node:
        but = "But " if not explanation.node else ""
        return f"{but}{command} places it on {outcome.node} ({before})"
    if explanation.node:
        more = "--after-simulation explains it"
        return f"But {command} refuses it ({before}; {more}): {outcome.message}"
    return f"{command} refuses it, too ({before})"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _by_node(refused: list[NodeExplanation]) -> Table:
    table = _table("\nNodes that refuse it", "NODE", "RULE", "REASON", "NEED AND HAVE")
    for node in refused:
        shown = node.failing or ((node.first,) if node.first else ())
        for index, refusal in enumerate(shown):
            table.add_row(
                Text(node.name if index == 0 else ""),
                Text(refusal.plugin),
                Text(", ".join(refusal.reasons)),
                Text("; ".join(refusal.details)),
            )
    return table


def _by_reason(refused: list[NodeExplanation]) -> Table:
    groups: dict[tuple[str, str], list[NodeExplanation]] = defaultdict(list)
    for node in refused:
        if node.first is not None:
            groups[node.first.plugin, ", ".join(node.first.reasons)].append(node)
    table = _table("\nNodes that refuse it, by first reason", "NODES", "RULE", "REASON", "SUCH AS")
    for (plugin, reason), nodes in sorted(groups.items(), key=lambda g: -len(g[1])):
        table.add_row(str(len(nodes)), Text(plugin), Text(reason), Text(_examples(nodes)))
    return table


def _examples(nodes: list[NodeExplanation]) -> str:
    shown = []
    for node in nodes[:DETAILS_SHOWN]:
        details = "; ".join(node.first.details) if node.first else ""
        shown.append(f"{node.name} ({details})" if details else node.name)
    more = len(nodes) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _print_scores(scores: tuple[NodeScore, ...], current: str, screen: Console) -> None:
    """Rules down, nodes across; nodes whose names are too long for that get a number."""
    shown = scores[:NAMES_SHOWN]
    shown += tuple(score for score in scores[NAMES_SHOWN:] if score.name == current)
    rules = [f"{name} x{score.weight}" for name, score in shown[0].plugins.items()]
    names = [score.name for score in shown]
    width = max(map(len, rules)) + sum(2 + max(len(name), CELL_WIDTH) for name in names)
    if width > screen.width:
        names = [f"({number})" for number in range(1, len(shown) + 1)]
    table = _table("\nScores: final (raw); final is the normalised score times the weight", "RULE")
    table.columns[0].no_wrap = True
    for name in names:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for plugin, rule in zip(shown[0].plugins, rules, strict=True):
        cells = [score.plugins[plugin] for score in shown]
        table.add_row(Text(rule), *(f"{cell.final} ({cell.raw})" for cell in cells))
    table.add_row("total", *(str(score.total) for score in shown), style="bold")
    screen.print(table)
    for name, score in zip(names, shown, strict=True):
        if name != score.name:
            screen.print(Text(f"{name} {score.name}"))


def _preemption(explanation: Explanation) -> Text:
    preemption = explanation.preemption
    assert preemption is not None
    if preemption.node:
        victims = ", ".join(preemption.victims)
        return Text(f"\nPreemption would make room on {preemption.node} by evicting {victims}")
    return Text("\nPreemption does not help here")
