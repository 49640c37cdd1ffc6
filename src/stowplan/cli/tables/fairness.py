"""Tables of fairness findings."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from stowplan.cli.tables.console import plain_table
from stowplan.insight.fairness.findings import Finding


def print_findings(findings: Sequence[Finding], console: Console, *, wide: bool = False) -> None:
    """Print findings, a line each. wide: with the pods."""
    columns = ["SUBJECT", "COUNT", "EXPLANATION", *["PODS"] * wide]
    table = plain_table("", "FINDING", *columns, right=("COUNT",))
    for one in findings:
        pods = [", ".join(one.pods)] * wide
        table.add_row(one.kind, one.subject, str(one.count), Text(one.explanation), *pods)
    console.print(table)
