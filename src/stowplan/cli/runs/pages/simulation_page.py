"""The page of what is finished, served until Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from stowplan.assembly.deciders import Deciders
    from stowplan.simulation.simulate import Simulation
    from stowplan.web.serving.page_source import PageSource


def check_simulation_address(web: str, what: str = "a simulation") -> None:
    """Raise a usage error for an address at which a simulation cannot be served."""
    from stowplan.cli.errors import reported
    from stowplan.driver.http.listen_address import AddressError
    from stowplan.web.serving.page_server import parse_web_address

    with reported(AddressError):
        address = parse_web_address(web)
    if not address.is_loopback:
        text = f"{what} has no API server that could review tokens; use a loopback address"
        raise click.UsageError(f"--web: Invalid value: {web!r}: {text}")


def serve_result(web: str, result: Simulation, deciders: Deciders) -> None:
    """Serve a simulation until SIGINT or SIGTERM. Raises CommandError."""
    from stowplan.web.serving.simulation_source import SimulationSource

    serve_finished(web, SimulationSource(result, deciders, int(time.time())))


def serve_finished(web: str, source: PageSource) -> None:
    """Serve a source that needs no scheduler until SIGINT or SIGTERM. Raises CommandError."""
    from stowplan.cli.runs.pages.serve_page import print_address, serving_page

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with serving_page(web) as page:
        page.use(source)
        print_address(page)
        click.echo("Stop with Ctrl-C.", err=True)
        stop.wait()
