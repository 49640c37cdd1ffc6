"""What `stowplan status` does: find the scheduler, ask it, print what it says."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from stowplan.cli.screen import screen
from stowplan.driver.asking import Unreachable, status_at
from stowplan.driver.client_credentials import CredentialError
from stowplan.driver.connecting import connection_to
from stowplan.driver.serving import DEFAULT
from stowplan.driver.status_address import connection_of_up, published


def shown(where: tuple[str, str | None, str], token: str, ca_file: str, output: str) -> int:
    """Print the status; the exit code. where: address, kubeconfig and context as given."""
    try:
        tree = _tree(*where, token, ca_file)
    except (Unreachable, CredentialError) as problem:
        click.echo(f"stowplan: {problem}", err=True)
        return 2
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(tree), indent=2).decode())
    else:
        _print(tree, screen())
    return 0 if tree.get("synced") else 1


def _tree(
    address: str, kubeconfig: str | None, context: str, token: str, ca_file: str
) -> dict[str, Any]:
    """The status at an address, of a cluster, or of whatever runs here."""
    if address:
        return status_at(address, token, ca_file)
    if kubeconfig or context:
        return status_at(published(connection_to(kubeconfig, context)))
    beside = connection_of_up()
    if beside is None:
        return status_at(DEFAULT, token, ca_file)
    try:
        return status_at(published(beside))
    except Unreachable as gone:
        # Its kubeconfig may have outlived it.
        try:
            return status_at(DEFAULT, token, ca_file)
        except Unreachable:
            raise gone from None


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
    queues = Table("queue", "pods", box=None, pad_edge=False)
    for queue, count in tree["pending"].items():
        queues.add_row(queue, str(count))
    paper.print(queues)
    followed = Table("followed", "objects", "", box=None, pad_edge=False)
    for one in tree["followed"]:
        note = "not served" if one.get("served") is False else one.get("fault", "")
        followed.add_row(one["resource"], str(one["objects"]), note)
    paper.print(followed)
