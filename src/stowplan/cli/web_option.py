"""The option `--web`: of every command that can serve the page."""

from __future__ import annotations

from stowplan.cli.command import flag

web = flag(
    "--web",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value="",
    help="Serve the web page, and print its address. Any host but loopback serves TLS and asks for "
    "a token of the cluster.  [default: no page; without HOST:PORT a free port of 127.0.0.1]",
)
