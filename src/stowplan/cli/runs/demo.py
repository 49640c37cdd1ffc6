"""What `stowplan demo` does and prints: a scripted demonstration on an embedded cluster."""

from __future__ import annotations

import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

import click
from rich.text import Text

from stowplan.cli.errors import CommandFailed, reported
from stowplan.cli.tables.console import plain_table, stdout_console
from stowplan.examples.demo import DemoKeeping, DemoResult, run_demo
from stowplan.examples.demo_cluster import AppPlacement, DemoError, demo_deciders
from stowplan.examples.demo_explanations import explain_placement
from stowplan.examples.demo_screen import LiveDisplay, PlainDisplay
from stowplan.forecast.queue_shares import Shares, shares_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.simulation.session_runner import SessionRunner

CPU = "cpu"
NEXT_STEPS = (
    ("up --node-count 5", "an embedded cluster for kubectl"),
    ("simulate", "5,000 pods on 1,000 nodes, without a cluster"),
)


def run_demo_command(*, fast: bool, keep: bool = False, report: str | None = None) -> int:
    """Run the demonstration and print its results; the exit code. keep: serve the page, and go on
    until a signal. report: the file of `--report`. Raises InputError."""
    console = stdout_console()
    console.print(
        "Six nodes of 8 cores in three zones, and one scheduler that decides in two ways:\n"
        "pod by pod, as kube-scheduler does, and in sessions for gangs, as kube-batch does."
    )
    display = LiveDisplay(console) if console.is_terminal else PlainDisplay(console)
    if keep:
        return _run_and_keep(display, fast=fast, report=report)
    with reported(DemoError, by=CommandFailed), display:
        outcome = run_demo(display, fast=fast)
    code = _print_outcome(outcome)
    _write_report(outcome, report)
    return code


def _write_report(outcome: DemoResult, report: str | None) -> None:
    if report is None:
        return
    # Imported here: as below.
    from stowplan.examples.demo_report import demo_report
    from stowplan.web.page import write_page

    write_page(demo_report(outcome), report)
    click.echo(f"Written: {report}")


def _run_and_keep(display: LiveDisplay | PlainDisplay, *, fast: bool, report: str | None) -> int:
    # Imported here: the page's modules are of this option only.
    from stowplan.cli.runs.pages.serve_page import print_address, serving_page

    with (
        reported(DemoError, by=CommandFailed),
        serving_page("") as page,
        ExitStack() as displayed,
    ):
        print_address(page)
        displayed.enter_context(display)

        def print_result(outcome: DemoResult) -> None:
            # Nothing is printed above a display that is still drawn.
            displayed.close()
            _print_outcome(outcome)
            _write_report(outcome, report)
            print_address(page)
            click.echo("Stop with Ctrl-C.")

        outcome = run_demo(display, fast=fast, keeping=DemoKeeping(page.attach, print_result))
    return 0 if outcome.is_as_expected else 1


def _print_outcome(outcome: DemoResult) -> int:
    """Print the results; the exit code."""
    print_placements(outcome.placements)
    if outcome.snapshot.nodes:
        print_queues(_shares(outcome))
    print_waits(outcome)
    print_end(outcome)
    return 0 if outcome.is_as_expected else 1


def _shares(outcome: DemoResult) -> Shares:
    """The shares that `stowplan queues` would print."""
    found = outcome.snapshot
    return shares_of(
        SessionRunner(Cluster(found.nodes, found.pods, found.objects), demo_deciders())
    )


def print_placements(placements: list[AppPlacement]) -> None:
    """A line per app: its scheduler, its nodes, and why the last pod was placed there."""
    table = plain_table("\nPlacements", "NAME", "SCHEDULER", "PLACED", "NODE:PODS", "REASON")
    for one in placements:
        nodes = ", ".join(f"{name.removeprefix('node-')}:{n}" for name, n in one.where.items())
        placed = f"{one.n_placed} of {one.n_pods}"
        table.add_row(
            *map(Text, (one.app, one.decided_by, placed, nodes or "-", explain_placement(one)))
        )
    stdout_console().print(table)


def print_queues(shares: Shares) -> None:
    """A line per queue, in cores."""
    title = "\nQueues after the reclaim, in cores"
    columns = ("WEIGHT", "DESERVED", "ALLOCATED", "REQUESTED")
    table = plain_table(title, "NAME", *columns, right=columns)
    for queue in shares.queues:
        deserved = (queue.deserved or {}).get(CPU, 0.0)
        amounts = (deserved, queue.allocated[CPU], queue.pending[CPU])
        table.add_row(queue.name, str(queue.weight), *(f"{amount:g}" for amount in amounts))
    stdout_console().print(table)


def print_waits(outcome: DemoResult) -> None:
    """A line per scheduler."""
    table = plain_table(
        "\nTime from creation to binding", "SCHEDULER", "PODS", "P50", "P99",
        right=("PODS", "P50", "P99"),
    )  # fmt: skip
    for wait in outcome.waits:
        times = (f"{1000 * seconds:.0f} ms" for seconds in (wait.p50_s, wait.p99_s))
        table.add_row(wait.decided_by, str(wait.n_pods), *times)
    stdout_console().print(table)


def print_end(outcome: DemoResult) -> None:
    """Print which checks failed, and what to try next."""
    failed = [check for check in outcome.checks if not check.held]
    n_checks = len(outcome.checks)
    if failed:
        click.echo(f"\n{len(failed)} of {n_checks} checks failed ({outcome.took_s:.0f} s):")
        for check in failed:
            click.echo(f"  expected: {check.expected}\n  observed: {check.seen}")
        for line in outcome.warnings:
            click.echo(f"  {line}", err=True)
    else:
        click.echo(f"\nAll {n_checks} checks passed, in {outcome.took_s:.0f} s.")
    click.echo("Next:")
    program = _program()
    for arguments, what in NEXT_STEPS:
        click.echo(f"  {program} {arguments:<18}  {what}")


def _program() -> str:
    """The name by which a shell finds this program."""
    started = Path(sys.argv[0])
    is_found = shutil.which("stowplan") is not None or started.name != "stowplan"
    return "stowplan" if is_found else str(started)
