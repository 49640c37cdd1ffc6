"""`stowplan status`: the status of a running scheduler."""

from __future__ import annotations

import sys

import click

from stowplan.cli import live_options, options
from stowplan.cli.command import Command, flag

DEFAULT = "127.0.0.1:10259"
"""That of `stowplan.driver.http.status_server`, which imports too much for a help text."""

EXAMPLES = """
# Show the scheduler of this computer
stowplan status

# Show a scheduler that serves TLS, as JSON
stowplan status --address https://10.0.0.5:10259 --token "$TOKEN" --ca-file ca.crt -o json

# Show the scheduler of a `stowplan up` cluster
stowplan status --kubeconfig stowplan.kubeconfig
"""


@click.command(name="status", cls=Command, examples=EXAMPLES)
@flag(
    "--address",
    metavar="HOST:PORT",
    default="",
    help="Address that serves the status, with https:// before it where that is TLS.  [default: "
    f"that of `stowplan up` in this directory, else {DEFAULT}]",
)
@live_options.status_options
@options.output("table", "json", "yaml")
def command(
    address: str, kubeconfig: str | None, context: str, token: str, ca_file: str, output: str
) -> None:
    """Show the queues, leadership and rates of a running scheduler.

    The scheduler is one of `stowplan run`, by its address, or that of `stowplan up`, by the
    kubeconfig of its cluster. Exit code 1 if it has not listed the cluster yet.
    """
    if address and (kubeconfig or context):
        raise click.UsageError("--address cannot be used with --kubeconfig or --context")
    from stowplan.cli.runs.status import run_status

    sys.exit(run_status((address, kubeconfig, context), token, ca_file, output))
