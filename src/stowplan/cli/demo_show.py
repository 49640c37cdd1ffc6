"""What `stowplan demo` does and prints: a scripted minute on a cluster in this process."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click
from rich.text import Text

from stowplan.cli.demo_screen import Plain, Playing
from stowplan.cli.demo_why import why
from stowplan.cli.jobs_table import plain_table
from stowplan.cli.screen import screen
from stowplan.driver.demo import Outcome, show
from stowplan.driver.demo_stage import DemoError, Placement, deciders
from stowplan.sim.cluster import Cluster
from stowplan.sim.queue_shares import Shares, shares_of
from stowplan.sim.rounds import Rounds

CPU = "cpu"
NEXT = (
    ("up --node-count 5", "a cluster of your own, for kubectl"),
    ("simulate", "5,000 pods on 1,000 nodes, without a cluster"),
)


def played(*, fast: bool) -> int:
    """Run the demonstration and print what came of it; the exit code."""
    paper = screen()
    paper.print(
        "Six nodes of 8 cores in three zones, and one scheduler with two ways to decide:\n"
        "pod by pod, as kube-scheduler does, and in sessions, as kube-batch does for gangs."
    )
    theatre = Playing(paper) if paper.is_terminal else Plain(paper)
    try:
        with theatre:
            outcome = show(theatre, fast=fast)
    except DemoError as problem:
        raise click.ClickException(str(problem)) from None
    print_placements(outcome.placements)
    if outcome.picture.nodes:
        print_queues(_shares(outcome))
    print_waits(outcome)
    print_end(outcome)
    return 0 if outcome.is_as_expected else 1


def _shares(outcome: Outcome) -> Shares:
    """The queues as `stowplan queues` sees them."""
    found = outcome.picture
    return shares_of(Rounds(Cluster(found.nodes, found.pods, found.objects), deciders()))


def print_placements(placements: list[Placement]) -> None:
    """A line per app: who placed how many of its pods where, and why the last of them there."""
    table = plain_table("\nWho went where", "APP", "BY", "PLACED", "NODE:PODS", "WHY")
    for one in placements:
        nodes = ", ".join(f"{name.removeprefix('node-')}:{n}" for name, n in one.where.items())
        placed = f"{one.n_placed} of {one.n_pods}"
        table.add_row(*map(Text, (one.app, one.decided_by, placed, nodes or "-", why(one))))
    screen().print(table)


def print_queues(shares: Shares) -> None:
    """A line per queue, in cores."""
    title = "\nQueues after the reclaim, in cores"
    table = plain_table(title, "QUEUE", "WEIGHT", "DESERVES", "HAS", "WAITS FOR")
    for queue in shares.queues:
        deserved = (queue.deserved or {}).get(CPU, 0.0)
        amounts = (deserved, queue.allocated[CPU], queue.pending[CPU])
        table.add_row(queue.name, str(queue.weight), *(f"{amount:g}" for amount in amounts))
    screen().print(table)


def print_waits(outcome: Outcome) -> None:
    """A line per decider."""
    table = plain_table("\nFrom being created to having a node", "BY", "PODS", "P50", "P99")
    for wait in outcome.waits:
        times = (f"{1000 * seconds:.0f} ms" for seconds in (wait.p50_s, wait.p99_s))
        table.add_row(wait.decided_by, str(wait.n_pods), *times)
    screen().print(table)


def print_end(outcome: Outcome) -> None:
    """Whether all went as expected, and what to try next."""
    failed = [check for check in outcome.checks if not check.held]
    n_checks = len(outcome.checks)
    if failed:
        click.echo(f"\n{len(failed)} of {n_checks} checks failed ({outcome.took_s:.0f} s):")
        for check in failed:
            click.echo(f"  expected: {check.expected}\n  seen:     {check.seen}")
        for line in outcome.complaints:
            click.echo(f"  {line}", err=True)
    else:
        click.echo(f"\nAll {n_checks} checks held, in {outcome.took_s:.0f} s.")
    click.echo("Next:")
    program = _program()
    for arguments, what in NEXT:
        click.echo(f"  {program} {arguments:<18}  {what}")


def _program() -> str:
    """How to call this command from here."""
    called = Path(sys.argv[0])
    is_known = shutil.which("stowplan") is not None or called.name != "stowplan"
    return "stowplan" if is_known else str(called)
