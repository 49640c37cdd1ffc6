"""What `stowplan status` does: find the scheduler, request its status, print it."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from stowplan.cli.errors import reported
from stowplan.cli.options import TREES
from stowplan.cli.tables.console import plain_table, print_tree, stdout_console
from stowplan.cli.tables.fairness import print_findings
from stowplan.driver.client.credentials import CredentialError
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.client.one_shot_requests import ServerUnreachable, fetch_status
from stowplan.driver.http.listen_address import DEFAULT_LISTEN_ADDRESS
from stowplan.driver.status_address import local_cluster_config, published_status_address
from stowplan.inputs.counts import count_of
from stowplan.insight.fairness.findings import Finding


def run_status(where: tuple[str, str | None, str], token: str, ca_file: str, output: str) -> int:
    """Print the status; the exit code. where: address, kubeconfig and context as given."""
    tree = status_tree(*where, token, ca_file)
    if output in TREES:
        print_tree(tree, output)
    else:
        _print(tree, stdout_console())
    return 0 if tree.get("synced") else 1


def status_tree(
    address: str, kubeconfig: str | None, context: str, token: str, ca_file: str
) -> dict[str, Any]:
    """The status of a scheduler; raises CommandError where there is none."""
    with reported(ServerUnreachable, CredentialError):
        return _tree(address, kubeconfig, context, token, ca_file)


def _tree(
    address: str, kubeconfig: str | None, context: str, token: str, ca_file: str
) -> dict[str, Any]:
    """The status at an address, of a cluster, or of the scheduler of this directory or computer."""
    if address:
        return fetch_status(address, token, ca_file)
    if kubeconfig or context:
        return fetch_status(published_status_address(load_client_config(kubeconfig, context)))
    local = local_cluster_config()
    if local is None:
        return fetch_status(DEFAULT_LISTEN_ADDRESS, token, ca_file)
    try:
        return fetch_status(published_status_address(local))
    except ServerUnreachable as unreachable:
        # The kubeconfig may be left over from a cluster that was killed.
        try:
            return fetch_status(DEFAULT_LISTEN_ADDRESS, token, ca_file)
        except ServerUnreachable:
            raise unreachable from None


def _print(tree: dict[str, Any], console: Console) -> None:
    leader, counts, rates = tree["leader"], tree["counts"], tree["rates"]
    role = f"leader, term {leader['term']}" if leader["leads"] else "standby"
    if not leader["leads"] and leader["holder"]:
        role += f", leader is {leader['holder']}"
    console.print(f"{', '.join(tree['schedulerNames'])} at {tree['server']}: {role}")
    console.print(
        f"{count_of(tree['nodes'], 'node')}; "
        f"{count_of(counts['bound'], 'pod')} bound ({rates['boundPerSecond']:g}/s), "
        f"{count_of(counts['refused'], 'attempt')} unschedulable "
        f"({rates['refusedPerSecond']:g}/s); "
        f"{count_of(tree['writes']['waiting'], 'write')} queued, "
        f"{tree['writes']['underWay']} in flight"
    )
    if "sessions" in tree:
        sessions = tree["sessions"]
        pending = count_of(sessions["waiting"], "pod")
        console.print(f"{count_of(sessions['held'], 'session')} run, {pending} pending")
        for job, why in (sessions.get("reasons") or {}).items():
            console.print(Text(f"  {job}: {why}"), soft_wrap=True)
    if "podGroups" in tree:
        groups = tree["podGroups"]
        held, waiting = count_of(groups["held"], "pod group"), count_of(groups["waiting"], "pod")
        console.print(f"{held}, {groups['pending']} with pending pods; {waiting} at Permit")
    if "comparison" in tree:
        found = ", ".join(f"{count} {what}" for what, count in tree["comparison"].items())
        console.print(f"dry run, compared with the cluster's scheduler: {found or 'no pods yet'}")
    queues = plain_table("", "QUEUE", "PODS", right=("PODS",))
    for queue, count in tree["pending"].items():
        queues.add_row(queue, str(count))
    console.print(queues)
    informers = plain_table("", "RESOURCE", "OBJECTS", "STATUS", right=("OBJECTS",))
    for one in tree["followed"]:
        status = "not served" if one.get("served") is False else one.get("fault", "")
        informers.add_row(one["resource"], str(one["objects"]), Text(status))
    console.print(informers)
    if "recording" in tree:
        recording = tree["recording"]
        state = f"stopped: {recording['failure']}" if recording["failure"] else "recording"
        console.print(
            f"{state}: {recording['file']}, {count_of(recording['calls'], 'call')}, "
            f"{count_of(recording['bytes'], 'byte')}"
        )
    if tree.get("findings"):
        print_findings(msgspec.convert(tree["findings"], list[Finding]), console)
