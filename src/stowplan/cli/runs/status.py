"""What `stowplan status` does: find the scheduler, ask it, print what it says."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from stowplan.cli.tables.console import stdout_console
from stowplan.driver.client.credentials import CredentialError
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.client.one_shot_requests import ServerUnreachable, fetch_status
from stowplan.driver.http.status_server import DEFAULT_LISTEN_ADDRESS
from stowplan.driver.status_address import local_cluster_config, published_status_address


def run_status(where: tuple[str, str | None, str], token: str, ca_file: str, output: str) -> int:
    """Print the status; the exit code. where: address, kubeconfig and context as given."""
    try:
        tree = _tree(*where, token, ca_file)
    except (ServerUnreachable, CredentialError) as problem:
        click.echo(f"stowplan: {problem}", err=True)
        return 2
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(tree), indent=2).decode())
    else:
        _print(tree, stdout_console())
    return 0 if tree.get("synced") else 1


def _tree(
    address: str, kubeconfig: str | None, context: str, token: str, ca_file: str
) -> dict[str, Any]:
    """The status at an address, of a cluster, or of whatever runs here."""
    if address:
        return fetch_status(address, token, ca_file)
    if kubeconfig or context:
        return fetch_status(published_status_address(load_client_config(kubeconfig, context)))
    beside = local_cluster_config()
    if beside is None:
        return fetch_status(DEFAULT_LISTEN_ADDRESS, token, ca_file)
    try:
        return fetch_status(published_status_address(beside))
    except ServerUnreachable as gone:
        # Its kubeconfig may have outlived it.
        try:
            return fetch_status(DEFAULT_LISTEN_ADDRESS, token, ca_file)
        except ServerUnreachable:
            raise gone from None


def _print(tree: dict[str, Any], console: Console) -> None:
    leader, counts, rates = tree["leader"], tree["counts"], tree["rates"]
    role = f"leads, term {leader['term']}" if leader["leads"] else "stands by"
    if not leader["leads"] and leader["holder"]:
        role += f" for {leader['holder']}"
    console.print(f"{', '.join(tree['schedulerNames'])} at {tree['server']}: {role}")
    console.print(
        f"{tree['nodes']} nodes; bound {counts['bound']} ({rates['boundPerSecond']:g}/s), "
        f"refused {counts['refused']} ({rates['refusedPerSecond']:g}/s); "
        f"writes waiting {tree['writes']['waiting']}, under way {tree['writes']['underWay']}"
    )
    if "sessions" in tree:
        sessions = tree["sessions"]
        console.print(f"sessions held {sessions['held']}, {sessions['waiting']} pods wait for one")
    if "shadow" in tree:
        found = ", ".join(f"{count} {what}" for what, count in tree["shadow"].items())
        console.print(
            f"dry run, compared with the cluster's own scheduler: {found or 'nothing yet'}"
        )
    queues = Table("queue", "pods", box=None, pad_edge=False)
    for queue, count in tree["pending"].items():
        queues.add_row(queue, str(count))
    console.print(queues)
    followed = Table("followed", "objects", "", box=None, pad_edge=False)
    for one in tree["followed"]:
        note = "not served" if one.get("served") is False else one.get("fault", "")
        followed.add_row(one["resource"], str(one["objects"]), note)
    console.print(followed)
