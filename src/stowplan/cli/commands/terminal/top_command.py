"""`stowplan top`: the page's data in a terminal."""

from __future__ import annotations

import click

from stowplan.cli.command import Command, flag

SCREENS = ("nodes", "pending", "queues", "decisions")
"""Those of `stowplan.cli.runs.top.top_rows`, which imports too much for a help text."""

EXAMPLES = """
# Watch the cluster of `stowplan up --web=127.0.0.1:8090`
stowplan top http://127.0.0.1:8090

# Begin with the pending pods of a scheduler that serves TLS
stowplan top https://10.0.0.5:8090 --token "$TOKEN" --ca-file ca.crt --screen pending
"""


@click.command(name="top", cls=Command, examples=EXAMPLES)
@click.argument("url", metavar="URL")
@flag(
    "--screen",
    type=click.Choice(SCREENS),
    default="nodes",
    help="Screen to begin with.",
)
@flag(
    "--token",
    metavar="TOKEN",
    default="",
    help="Bearer token; needed unless the address is loopback.",
)
@flag(
    "--ca-file",
    metavar="FILE",
    default="",
    type=click.Path(dir_okay=False),
    help="PEM file with the CA of the serving certificate.  [default: the system's CAs]",
)
def command(url: str, screen: str, token: str, ca_file: str) -> None:
    """Watch nodes, pending pods, queues and decisions in the terminal.

    URL is the address that `--web` of `up`, `run` and `simulate` prints. Keys are those of k9s: `/`
    filters, Enter opens, Esc goes back, `s` sorts, `?` shows all keys, `q` quits. It needs the
    extra `stowplan[top]`.
    """
    from stowplan.cli.runs.top.run_top import run_top

    run_top(url, screen, token, ca_file)
