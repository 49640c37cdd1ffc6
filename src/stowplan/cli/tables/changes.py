"""Changes that let pods run, and pending pods by cause, as text."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from stowplan.cli.tables.console import examples, plain_table
from stowplan.cycle.change import Change, PodChanges
from stowplan.insight.pending_causes import PendingCauses

PODS_LISTED = 3


def print_changes(found: PodChanges, screen: Console) -> None:
    """Print the changes of one pod."""
    if not found.changes:
        screen.print(Text(f"{found.pod}: no change is needed, or none was found"), style="bold")
    else:
        screen.print(Text(f"{found.pod}: one of these changes lets it run"), style="bold")
    print_change_table(found.changes, found.not_searched, screen)


def print_change_table(
    changes: tuple[Change, ...], not_searched: tuple[str, ...], screen: Console, title: str = ""
) -> None:
    """Print a line for each change, and what the search left out."""
    if changes:
        table = plain_table(title, "COST", "KIND", "CHANGE", right=("COST",))
        for change in changes:
            table.add_row(str(change.cost), change.kind, Text(change.text))
        screen.print(table)
    if changes and changes[0].kind == "combined":
        screen.print(Text("No single change helps; these two together do.", style="dim"))
    if not_searched:
        screen.print(Text(f"Not searched: {'; '.join(not_searched)}", style="dim"))


def print_causes(found: PendingCauses, screen: Console, *, wide: bool = False) -> None:
    """Print pending pods by cause. wide: every pod."""
    if not found.causes:
        screen.print(Text("No pending pods"))
        return
    table = plain_table(
        "", "PODS", "CAUSE", "EXAMPLES", "SMALLEST CHANGE OF THE FIRST", right=("PODS",)
    )
    for one in found.causes:
        names = list(one.pods)
        listed = ", ".join(names) if wide else examples(names, PODS_LISTED)
        change = one.changes[0].text if one.changes else ""
        table.add_row(str(one.count), Text(one.cause), Text(listed), Text(change))
    screen.print(table)
