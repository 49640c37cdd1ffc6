"""`stowplan queues`: what each queue deserves, has and waits for, and who borrows from whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stowplan.cli import live_options, options

if TYPE_CHECKING:
    from rich.console import Console

    from stowplan.assembly.deciders import Deciders
    from stowplan.sim.queue_shares import QueueShares, Shares


@click.command(name="queues")
@options.reading
@live_options.kubeconfig
@live_options.context
@options.config
@options.plugin
@options.compat
@options.no_namespace
@options.no_all_namespaces
@options.output
def command(
    files: tuple[str, ...],
    clusters: tuple[str, ...],
    orphans: str,
    validate: str | None,
    kubeconfig: str | None,
    context: str,
    config_files: tuple[str, ...],
    plugin_files: tuple[str, ...],
    compat: str | None,
    output: str,
) -> None:
    """Print what each queue of a cluster deserves, has and waits for, and who borrows from whom.

    The cluster is that of files (FILE, -f FILE), or a live one (--kubeconfig, --context). Nothing
    is decided: it is the cluster as a session finds it. Without --config queues share by weight, as
    in kube-batch's own default.
    """
    import msgspec

    from stowplan.cli.configuration_warnings import warned
    from stowplan.cli.reading import Source, cluster_of
    from stowplan.cli.screen import screen
    from stowplan.sim.deciders import read_deciders
    from stowplan.sim.queue_shares import shares_of
    from stowplan.sim.rounds import Rounds

    if config_files:
        deciders = warned(read_deciders(config_files, plugin_files, compat or ""))
    else:
        deciders = by_default(plugin_files, compat or "")
    source = Source((*clusters, *files), kubeconfig, context, orphans, validate)
    shares = shares_of(Rounds(cluster_of(source, deciders, notes=True), deciders))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(shares), indent=2))
    else:
        print_shares(shares, screen())


def by_default(plugin_files: tuple[str, ...], compat: str) -> Deciders:
    """What decides where no file says: kube-batch's own default."""
    from stowplan.assembly.deciders import Text, deciders_of
    from stowplan.config.batch import DEFAULT_TEXT
    from stowplan.sim.deciders import compat_named
    from stowplan.sim.plugins import plugin_classes

    return deciders_of(
        [Text(DEFAULT_TEXT, "default configuration")],
        plugin_classes(plugin_files),
        compat_named(compat),
    )


def print_shares(shares: Shares, paper: Console) -> None:
    """A line per queue and resource, then a line per loan."""
    from rich.text import Text

    from stowplan.cli.jobs_table import plain_table

    table = plain_table(
        "Queues", "QUEUE", "WEIGHT", "SHARE", "PLACED", "PENDING",
        "RESOURCE", "PART", "DESERVED", "ALLOCATED", "WAITS FOR",
    )  # fmt: skip
    is_limited = any(queue.capability for queue in shares.queues)
    if is_limited:
        table.add_column("CAPABILITY", overflow="fold")
    for queue in shares.queues:
        share = "-" if queue.share is None else f"{queue.share:.2f}"
        head = [queue.name, str(queue.weight), share]
        head += [str(queue.pods_placed), str(queue.pods_pending)]
        for resource in queue.part:
            most = queue.capability.get(resource)
            limit = [] if not is_limited else ["-" if most is None else _shown(resource, most)]
            table.add_row(*map(Text, [*head, resource, *_amounts(queue, resource), *limit]))
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
        from stowplan.batch.amounts import bytes_text

        return bytes_text(amount)
    return f"{amount:.3f}".rstrip("0").rstrip(".")
