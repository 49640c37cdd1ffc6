"""`stowplan queues`: what each queue deserves, has and waits for, and who borrows from whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stowplan.cli import live_options, options

if TYPE_CHECKING:
    from rich.console import Console

    from stowplan.assembly.deciders import Deciders
    from stowplan.forecast.queue_shares import QueueShares, Shares


@click.command(name="queues")
@options.input_options
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

    from stowplan.cli.runs.cluster_source import ClusterSource, read_cluster_source
    from stowplan.cli.tables.configuration_warnings import warn_of_ineffective_settings
    from stowplan.cli.tables.console import stdout_console
    from stowplan.forecast.queue_shares import shares_of
    from stowplan.simulation.scheduler_configuration import read_deciders
    from stowplan.simulation.session_runner import SessionRunner

    if config_files:
        deciders = warn_of_ineffective_settings(
            read_deciders(config_files, plugin_files, compat or "")
        )
    else:
        deciders = default_session_deciders(plugin_files, compat or "")
    source = ClusterSource((*clusters, *files), kubeconfig, context, orphans, validate)
    shares = shares_of(SessionRunner(read_cluster_source(source, deciders, notes=True), deciders))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(shares), indent=2))
    else:
        print_shares(shares, stdout_console())


def default_session_deciders(plugin_files: tuple[str, ...], compat: str) -> Deciders:
    """What decides where no file says: kube-batch's own default."""
    from stowplan.assembly.deciders import ConfigText, deciders_of
    from stowplan.config.session_configuration import DEFAULT_TEXT
    from stowplan.inputs.plugin_sources import plugin_classes
    from stowplan.simulation.scheduler_configuration import compat_named

    return deciders_of(
        [ConfigText(DEFAULT_TEXT, "default configuration")],
        plugin_classes(plugin_files),
        compat_named(compat),
    )


def print_shares(shares: Shares, console: Console) -> None:
    """A line per queue and resource, then a line per loan."""
    from rich.text import Text

    from stowplan.cli.tables.jobs import plain_table

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
    console.print(table)
    for loan in shares.loans:
        amount, back = (_shown(loan.resource, n) for n in (loan.amount, loan.wanted_back))
        wants = f"; {loan.lender} waits for {back} of it" if loan.wanted_back else ""
        line = f"{loan.borrower} borrows {amount} {loan.resource} from {loan.lender}{wants}"
        console.print(Text(line), soft_wrap=True)
    if not shares.loans:
        console.print(Text("Nobody borrows."))
    for queue_name, n_pods in shares.missing_queues.items():
        console.print(Text(f"No queue {queue_name!r}, which {n_pods} pods are in."))
    for group, n_pods in shares.ungrouped.items():
        console.print(Text(f"No PodGroup {group!r}, which {n_pods} pods are in."))


def _amounts(queue: QueueShares, resource: str) -> list[str]:
    deserved = "-" if queue.deserved is None else _shown(resource, queue.deserved[resource])
    amounts = (queue.part, queue.allocated, queue.pending)
    part, allocated, pending = (_shown(resource, amount[resource]) for amount in amounts)
    return [part, deserved, allocated, pending]


def _shown(resource: str, amount: float) -> str:
    """Cores and pieces as they are, bytes in larger units."""
    if resource in ("memory", "ephemeral-storage"):
        from stowplan.batch.state.resource_vector import format_bytes

        return format_bytes(amount)
    return f"{amount:.3f}".rstrip("0").rstrip(".")
