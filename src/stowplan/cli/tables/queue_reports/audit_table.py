"""The table of what the audit of queues finds."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from stowplan.cli.tables.console import plain_table
from stowplan.forecast.queue_reports.queue_audit import QueueAudit
from stowplan.inputs.counts import count_of


def print_audit(audit: QueueAudit, screen: Console) -> None:
    """A line per finding, the most severe ones first, and their number."""
    if not audit.findings:
        screen.print(Text(f"No findings in {count_of(audit.queues, 'queue')}."))
        return
    table = plain_table("", "SEVERITY", "OBJECT", "REASON", "MESSAGE")
    for one in audit.findings:
        name = f"{one.kind}/{one.name}" if one.name else one.kind
        table.add_row(*map(Text, (one.severity, name, one.reason, one.message)))
    screen.print(table)
    counts = {one.severity: 0 for one in audit.findings}
    for one in audit.findings:
        counts[one.severity] += 1
    parts = ", ".join(f"{number} {severity}" for severity, number in counts.items())
    screen.print(Text(f"{count_of(audit.queues, 'queue')}: {parts}"))
