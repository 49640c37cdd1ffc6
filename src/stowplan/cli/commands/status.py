"""`stowplan status`: how a running scheduler is doing."""

from __future__ import annotations

import sys

import click

from stowplan.cli import live_options, options

DEFAULT = "127.0.0.1:10259"
"""That of `stowplan.driver.http.status_server`, which imports too much for a help text."""


@click.command(name="status")
@click.option(
    "--address",
    metavar="HOST:PORT",
    default="",
    help=f"Where it serves its status; https:// before it where it speaks TLS.  [default: {DEFAULT}"
    ", or where the `stowplan up` of this directory says]",
)
@live_options.kubeconfig_of_up
@live_options.context
@click.option("--token", metavar="TOKEN", default="", help="Who asks, elsewhere than on loopback.")
@click.option("--ca-file", metavar="FILE", default="", help="PEM: how its certificate is trusted.")
@options.no_namespace
@options.no_all_namespaces
@options.output
def command(
    address: str, kubeconfig: str | None, context: str, token: str, ca_file: str, output: str
) -> None:
    """Show queues, leader and rates of a running scheduler.

    That of `stowplan run`, by its address, or that of `stowplan up`: --kubeconfig names its
    cluster, which knows the address. Exit code 1 when it has not listed the cluster yet.
    """
    if address and (kubeconfig or context):
        raise click.UsageError("--address and --kubeconfig, --context: one of them.")
    from stowplan.cli.runs.status import run_status

    where = (address, kubeconfig, context)
    sys.exit(run_status(where, token, ca_file, output))
