"""`stowplan status`: how a running scheduler is doing."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from stowplan.cli import options
from stowplan.cli.screen import screen
from stowplan.driver.asking import Unreachable, status_at
from stowplan.driver.client_credentials import CredentialError
from stowplan.driver.serving import DEFAULT


@click.command(name="status")
@click.option(
    "--address",
    metavar="HOST:PORT",
    default=DEFAULT,
    show_default=True,
    help="Where it serves its status; https:// before it where it speaks TLS.",
)
@click.option("--token", metavar="TOKEN", default="", help="Who asks, elsewhere than on loopback.")
@click.option("--ca-file", metavar="FILE", default="", help="PEM: how its certificate is trusted.")
@options.output
def command(address: str, token: str, ca_file: str, output: str) -> None:
    """Show queues, leader and rates of a running scheduler.

    Exit code 1 when it has not listed the cluster yet.
    """
    try:
        tree = status_at(address, token, ca_file)
    except (Unreachable, CredentialError) as problem:
        click.echo(f"stowplan: {problem}", err=True)
        sys.exit(2)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(tree), indent=2).decode())
    else:
        _print(tree, screen())
    sys.exit(0 if tree.get("synced") else 1)


def _print(tree: dict[str, Any], paper: Console) -> None:
    leader, counts, rates = tree["leader"], tree["counts"], tree["rates"]
    role = f"leads, term {leader['term']}" if leader["leads"] else "stands by"
    if not leader["leads"] and leader["holder"]:
        role += f" for {leader['holder']}"
    paper.print(f"{', '.join(tree['schedulerNames'])} at {tree['server']}: {role}")
    paper.print(
        f"{tree['nodes']} nodes; bound {counts['bound']} ({rates['boundPerSecond']:g}/s), "
        f"refused {counts['refused']} ({rates['refusedPerSecond']:g}/s); "
        f"writes waiting {tree['writes']['waiting']}, under way {tree['writes']['underWay']}"
    )
    if "sessions" in tree:
        sessions = tree["sessions"]
        paper.print(f"sessions held {sessions['held']}, {sessions['waiting']} pods wait for one")
    if "shadow" in tree:
        found = ", ".join(f"{count} {what}" for what, count in tree["shadow"].items())
        paper.print(f"dry run, compared with the cluster's own scheduler: {found or 'nothing yet'}")
    queues = Table("queue", "pods", box=None)
    for queue, count in tree["pending"].items():
        queues.add_row(queue, str(count))
    paper.print(queues)
    followed = Table("followed", "objects", "", box=None)
    for one in tree["followed"]:
        note = "not served" if one.get("served") is False else one.get("fault", "")
        followed.add_row(one["resource"], str(one["objects"]), note)
    paper.print(followed)
