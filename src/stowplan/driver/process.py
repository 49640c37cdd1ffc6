"""The scheduler process: signals, startup checks, dry run summary."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from stowplan.assembly.deciders import Deciders
from stowplan.driver.background_tasks import BackgroundTasks
from stowplan.driver.client.apiserver_readiness import wait_for_apiserver
from stowplan.driver.client.tls_buffers import limit_tls_buffers
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.gc_settings import paused_collector
from stowplan.driver.http.listen_address import ListenAddress
from stowplan.driver.live.competing_schedulers import refuse_competing_scheduler
from stowplan.driver.live.configuration_files import live_problems, scheduler_names
from stowplan.driver.live.configuration_reload import start_configuration_reload
from stowplan.driver.live.decision_comparer import (
    AS_GOOD,
    OTHER,
    OURS_ONLY,
    REFUSED,
    SAME,
    THEIRS_ONLY,
    DecisionDifference,
)
from stowplan.driver.live.scheduler_server import SchedulerServer, SchedulerServerOptions
from stowplan.driver.live.scheduler_status import write_state_dump
from stowplan.driver.logs import log_keys

if TYPE_CHECKING:
    from stowplan.driver.http.status_server import StatusServer

log = logging.getLogger("stowplan.scheduler")

LEASE_LOST_EXIT_S = 5.0


class ProcessOptions(msgspec.Struct, frozen=True):
    """Command line options beside those of the scheduler. on_server: called with the scheduler
    server before it runs."""

    address: ListenAddress | None = None
    take_over: bool = False
    on_server: Callable[[SchedulerServer], None] | None = None


def run(deciders: Deciders, options: SchedulerServerOptions, orders: ProcessOptions) -> int:
    """Schedule until a signal arrives; returns the exit code. Raises CompetingSchedulerError,
    ConfigError, ContractError, CredentialError and AddressError."""
    limit_tls_buffers()
    code = asyncio.run(_run(deciders, options, orders))
    # Shutdown has begun: ignore further signals.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return code


async def _run(deciders: Deciders, options: SchedulerServerOptions, orders: ProcessOptions) -> int:
    if not await _wait_for_startup(deciders, options, orders):
        return 0
    address = orders.address
    serve = None if address is None else partial(_status_server, address=address)
    server = SchedulerServer(deciders, options, serve)
    server.on_lease_lost = partial(exit_after, LEASE_LOST_EXIT_S, 1)
    if orders.on_server is not None:
        orders.on_server(server)
    if server.comparer is not None:
        server.comparer.on_difference = _log_difference
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(_on_stop_signal, server, number))
    with paused_collector() as resume_collector:
        server.on_synced = resume_collector
        code = await server.run(partial(_start_background_tasks, server, orders))
    # By default this signal ends a process.
    loop.add_signal_handler(signal.SIGUSR2, _ignore)
    if server.comparer is not None:
        _log_dry_run_summary(server)
    return code


def _status_server(server: SchedulerServer, address: ListenAddress) -> StatusServer:
    # Imported here: its HTTP library takes long.
    from stowplan.driver.http.status_server import StatusServer

    return StatusServer(server, address)


def _start_background_tasks(
    server: SchedulerServer, orders: ProcessOptions, tasks: BackgroundTasks
) -> None:
    """Start what a scheduler process does besides scheduling."""
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGUSR2, lambda: tasks.start_independent(_dump(server), "state dump")
    )
    start_configuration_reload(server, tasks, take_over=orders.take_over)


async def _wait_for_startup(
    deciders: Deciders, options: SchedulerServerOptions, orders: ProcessOptions
) -> bool:
    """Run the startup checks; False if a signal arrives first. Raises CompetingSchedulerError and
    CredentialError."""
    looking = asyncio.create_task(check_startup(deciders, options, orders))
    loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, looking.cancel)
    try:
        await looking
    except asyncio.CancelledError:
        return False
    return True


async def check_startup(
    deciders: Deciders, options: SchedulerServerOptions, orders: ProcessOptions
) -> None:
    """Wait for the API server, and refuse to run beside a competing scheduler, or with what works
    in simulations only. Raises CompetingSchedulerError, ConfigError and CredentialError."""
    problems = live_problems(deciders.configuration, "configuration")
    if problems is not None and not options.dry_run:
        raise problems
    await wait_for_apiserver(options.client_config)
    if not orders.take_over and not options.dry_run:
        await refuse_competing_scheduler(scheduler_names(deciders), options.client_config)


def _on_stop_signal(server: SchedulerServer, number: int) -> None:
    log_keys(log, logging.INFO, "Stopping on signal", signal=signal.Signals(number).name)
    server.stop()


async def _dump(server: SchedulerServer) -> None:
    try:
        file = await server.call_between_handles(lambda: write_state_dump(server))
        log_keys(log, logging.INFO, "Wrote state dump", file=str(file))
    except TimeoutError:
        log_keys(log, logging.WARNING, "Unable to write state dump", err="session takes too long")
    except OSError as problem:
        log_keys(log, logging.WARNING, "Unable to write state dump", err=str(problem))


def _ignore() -> None:
    """Signal handler that does nothing."""


def exit_after(seconds: float, code: int) -> None:
    """Exit the process with this code after a time, if it has not ended by then."""
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()


# Dry runs.


def _log_dry_run_summary(server: SchedulerServer) -> None:
    comparer = server.comparer
    assert comparer is not None
    comparer.compare_all(monotonic_ns())
    counts = comparer.counts
    log_keys(
        log,
        logging.INFO,
        "Dry run finished",
        compared=counts[SAME] + counts[AS_GOOD] + counts[OTHER] + counts[THEIRS_ONLY],
        same=counts[SAME],
        equallyGood=counts[AS_GOOD],
        otherNode=counts[OTHER],
        unschedulableHere=counts[THEIRS_ONLY],
        unschedulableInBoth=counts[REFUSED],
        scheduledHere=counts[OURS_ONLY],
        pendingThere=len(comparer.ours_only()),
        evictions=comparer.n_evictions,
    )


def _log_difference(difference: DecisionDifference) -> None:
    nodes = {"here": difference.ours, "there": difference.theirs}
    why = difference.why
    log_keys(log, logging.INFO, "Decision differs", pod=difference.pod, **nodes, reason=why)
