"""The table of queues and what they borrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from stowplan.batch.state.task_requests import format_bytes
from stowplan.cli.tables.console import plain_table
from stowplan.inputs.counts import count_of

if TYPE_CHECKING:
    from stowplan.forecast.queue_shares import QueueShares, Shares

_FIGURES = ("WEIGHT", "SHARE", "PLACED", "PENDING", "BY WEIGHT", "DESERVED", "ALLOCATED")


def print_shares(shares: Shares, console: Console, *, wide: bool = False) -> None:
    """A line per queue and resource, then a line per loan. wide: with each queue's part of the
    cluster by weight."""
    is_limited = any(queue.capability for queue in shares.queues)
    columns = ["NAME", "WEIGHT", "SHARE", "PLACED", "PENDING", "RESOURCE"]
    columns += ["BY WEIGHT"] if wide else []
    is_guaranteed = any(queue.guarantee for queue in shares.queues)
    columns += ["GUARANTEE"] * is_guaranteed
    columns += ["DESERVED", "ALLOCATED", "REQUESTED"] + ["CAPABILITY"] * is_limited
    table = plain_table("", *columns, right=(*_FIGURES, "REQUESTED", "CAPABILITY", "GUARANTEE"))
    for queue in shares.queues:
        share = "-" if queue.share is None else f"{queue.share:.2f}"
        head = [queue.name, str(queue.weight), share]
        head += [str(queue.pods_placed), str(queue.pods_pending)]
        for resource in queue.part:
            cells = _amounts(queue, resource, wide=wide)
            if is_guaranteed:
                cells.insert(int(wide), _amount(resource, queue.guarantee.get(resource)))
            if is_limited:
                cells.append(_amount(resource, queue.capability.get(resource)))
            table.add_row(*map(Text, [*head, resource, *cells]))
            head = [""] * len(head)
    console.print(table)
    for line in _lines(shares):
        console.print(Text(line), soft_wrap=True)


def _amounts(queue: QueueShares, resource: str, *, wide: bool) -> list[str]:
    amounts = [queue.part[resource]] if wide else []
    deserved = None if queue.deserved is None else queue.deserved[resource]
    found = [*amounts, deserved, queue.allocated[resource], queue.pending[resource]]
    return [_amount(resource, amount) for amount in found]


def _lines(shares: Shares) -> list[str]:
    """What queues borrow, and names that pods use and the cluster lacks."""
    lines = []
    for loan in shares.loans:
        amount, back = (_amount(loan.resource, n) for n in (loan.amount, loan.wanted_back))
        wants = f"; {loan.lender} can reclaim {back} of it" if loan.wanted_back else ""
        lines.append(f"{loan.borrower} borrows {amount} {loan.resource} from {loan.lender}{wants}")
    if not shares.loans:
        lines.append("No queue borrows resources.")
    for name, n_pods in shares.strays.items():
        why = shares.left_out.get(name)
        what = "not found" if why is None else f"starts no jobs: {why}"
        lines.append(f'queues "{name}" {what} ({count_of(n_pods, "pod is", "pods are")} in it)')
    for name, n_pods in shares.ungrouped.items():
        lines.append(
            f'podgroups "{name}" not found ({count_of(n_pods, "pod is", "pods are")} in it)'
        )
    return lines


def _amount(resource: str, amount: float | None) -> str:
    """Cores or units of an extended resource, bytes with a suffix; "-" for None."""
    if amount is None:
        return "-"
    if resource in ("memory", "ephemeral-storage"):
        return format_bytes(amount)
    return f"{amount:.3f}".rstrip("0").rstrip(".")
