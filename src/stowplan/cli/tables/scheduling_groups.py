"""PodGroups of scheduling.k8s.io as text: the result of one group cycle, member by member."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from stowplan.cli.tables.console import plain_table
from stowplan.forecast.explain_scheduling_group import SchedulingGroupExplanation
from stowplan.inputs.counts import count_of


def print_scheduling_group(found: SchedulingGroupExplanation, screen: Console) -> None:
    """Print for a terminal; wide tables fold to its width."""
    screen.print(Text(_headline(found), style="bold"))
    policy = found.policy
    if found.min_count is not None:
        policy += f", minCount {found.min_count}"
    if found.topology_key:
        policy += f", one {found.topology_key} for all"
    pods = count_of(found.pods, "pod")
    screen.print(Text(f"{policy}; {pods}, {found.running} running"))
    if found.message:
        screen.print(Text(found.message))
    if found.evicted:
        screen.print(Text(f"It evicts {', '.join(found.evicted)}"))
    table = plain_table("\nPods", "POD", "STATE", "NODE", "REASON")
    for one in found.members:
        table.add_row(Text(one.pod), one.state, Text(one.node), Text(one.message))
    screen.print(table)


def _headline(found: SchedulingGroupExplanation) -> str:
    where = f"podgroup {found.pod_group} ({found.decided_by or 'no pods'}, by profiles): "
    if found.outcome == "waiting_on_preemption":
        return f"{where}{found.state}; it waits for evictions"
    if found.state == "gated":
        return f"{where}pending; not attempted"
    if found.state == "pending" and found.outcome == "scheduled":
        return f"{where}pending; its pods wait at Permit"
    return f"{where}{found.state}"
