"""`stowplan queues`: what each queue deserves, has and waits for, and who borrows from whom."""

from __future__ import annotations

import click
import msgspec
from rich.console import Console
from rich.text import Text

from stowplan.assembly.deciders import Deciders, deciders_of
from stowplan.assembly.deciders import Text as File
from stowplan.cli import options
from stowplan.cli.input_notes import read_input
from stowplan.cli.jobs_table import plain_table
from stowplan.cli.screen import screen
from stowplan.config.batch import DEFAULT_TEXT
from stowplan.sim.deciders import compat_named, read_deciders
from stowplan.sim.explain_job import bytes_text
from stowplan.sim.plugins import plugin_classes
from stowplan.sim.queue_shares import QueueShares, Shares, shares_of
from stowplan.sim.rounds import Rounds


@click.command(name="queues")
@options.reading
@options.config
@options.plugin
@options.compat
@options.output
def command(
    clusters: tuple[str, ...],
    orphans: str,
    validate: str | None,
    config_files: tuple[str, ...],
    plugin_files: tuple[str, ...],
    compat: str | None,
    output: str,
) -> None:
    """Print what each queue of a cluster deserves, has and waits for, and who borrows from whom.

    Nothing is decided: it is the cluster as a session finds it. Without --config queues share by
    weight, as in kube-batch's own default.
    """
    if config_files:
        deciders = read_deciders(config_files, plugin_files, compat or "")
    else:
        deciders = by_default(plugin_files, compat or "")
    cluster = read_input(clusters, orphans, validate, notes=True)
    shares = shares_of(Rounds(cluster, deciders))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(shares), indent=2))
    else:
        print_shares(shares, screen())


def by_default(plugin_files: tuple[str, ...], compat: str) -> Deciders:
    """What decides where no file says: kube-batch's own default."""
    return deciders_of(
        [File(DEFAULT_TEXT, "default configuration")],
        plugin_classes(plugin_files),
        compat_named(compat),
    )


def print_shares(shares: Shares, paper: Console) -> None:
    """A line per queue and resource, then a line per loan."""
    table = plain_table(
        "Queues", "QUEUE", "WEIGHT", "SHARE", "PLACED", "PENDING",
        "RESOURCE", "PART", "DESERVED", "ALLOCATED", "WAITS FOR",
    )  # fmt: skip
    for queue in shares.queues:
        share = "-" if queue.share is None else f"{queue.share:.2f}"
        head = [queue.name, str(queue.weight), share]
        head += [str(queue.pods_placed), str(queue.pods_pending)]
        for resource in queue.part:
            table.add_row(*map(Text, [*head, resource, *_amounts(queue, resource)]))
            head = [""] * len(head)
    paper.print(table)
    for loan in shares.loans:
        amount, back = (_shown(loan.resource, n) for n in (loan.amount, loan.wanted_back))
        wants = f"; {loan.lender} waits for {back} of it" if loan.wanted_back else ""
        line = f"{loan.borrower} borrows {amount} {loan.resource} from {loan.lender}{wants}"
        paper.print(Text(line), soft_wrap=True)
    if not shares.loans:
        paper.print(Text("Nobody borrows."))
    for queue_name, n_pods in shares.strays.items():
        paper.print(Text(f"No queue {queue_name!r}, which {n_pods} pods are in."))
    for group, n_pods in shares.ungrouped.items():
        paper.print(Text(f"No PodGroup {group!r}, which {n_pods} pods are in."))


def _amounts(queue: QueueShares, resource: str) -> list[str]:
    deserved = "-" if queue.deserved is None else _shown(resource, queue.deserved[resource])
    amounts = (queue.part, queue.allocated, queue.pending)
    part, allocated, pending = (_shown(resource, amount[resource]) for amount in amounts)
    return [part, deserved, allocated, pending]


def _shown(resource: str, amount: float) -> str:
    """Cores and pieces as they are, bytes in larger units."""
    if resource in ("memory", "ephemeral-storage"):
        return bytes_text(amount)
    return f"{amount:.3f}".rstrip("0").rstrip(".")
