"""Serving the page while a command runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from stowplan.cli.errors import CommandFailed, reported

if TYPE_CHECKING:
    from stowplan.web.serving.page_server import PageServer


@contextmanager
def serving_page(web: str, certificate: str = "", key: str = "") -> Iterator[PageServer]:
    """A started server until the end of the block. web: the value of `--web`. certificate, key:
    files for other addresses than loopback. Raises CommandError."""
    # Only here: the page answers questions, with half of Stowplan, and most commands have none.
    from stowplan.driver.http.listen_address import AddressError
    from stowplan.web.serving.page_server import PageServer, parse_web_address

    with reported(AddressError):
        address = parse_web_address(web, certificate, key)
    server = PageServer(address, experiments=".")
    with reported(AddressError, by=CommandFailed):
        server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def maybe_serving_page(web: str | None, certificate: str, key: str) -> Iterator[PageServer | None]:
    """The same if `--web` is given."""
    if web is None:
        yield None
        return
    with serving_page(web, certificate, key) as server:
        yield server


def print_address(server: PageServer | None) -> None:
    """The line that programs look for."""
    if server is not None:
        click.echo(f"Web page: {server.url}")
