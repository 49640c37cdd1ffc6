"""The scheduler process: signals, startup checks, dry run summary."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from stowplan.assembly.deciders import Deciders
from stowplan.client.backoff import JitteredBackoff
from stowplan.client.leader_election import Lease
from stowplan.client.requests import read_lease
from stowplan.client.responses import ResponseOutcome, decode_body, error_message
from stowplan.driver.background_tasks import BackgroundTasks
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.apiserver_readiness import wait_for_apiserver
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.gc_settings import paused_collector
from stowplan.driver.http.status_server import ListenAddress, StatusServer
from stowplan.driver.live.configuration_files import (
    SCHEDULER_NAME,
    lease_name,
    log_warnings,
    scheduler_names,
)
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
from stowplan.framework import ConfigError, ContractError
from stowplan.messages.events import ConfigurationChanged
from stowplan.objects.encoding.duration import SECOND

log = logging.getLogger("stowplan.scheduler")

LEASE_POLL_S = 1.0
LEASE_NAMESPACE = "kube-system"
LEASE_LOST_EXIT_S = 5.0
CONFIGURATION_POLL_S = 2.0


class CompetingSchedulerError(RuntimeError):
    """Another scheduler schedules the same pods."""


class ProcessOptions(msgspec.Struct, frozen=True):
    """Command line options beside those of the scheduler."""

    address: ListenAddress | None = None
    take_over: bool = False


def run(deciders: Deciders, options: SchedulerServerOptions, orders: ProcessOptions) -> int:
    """Schedule until a signal arrives; returns the exit code. Raises CompetingSchedulerError,
    ConfigError, ContractError, CredentialError and AddressError."""
    code = asyncio.run(_run(deciders, options, orders))
    # Shutdown has begun: ignore further signals.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return code


async def _run(deciders: Deciders, options: SchedulerServerOptions, orders: ProcessOptions) -> int:
    if not await _wait_for_startup(deciders, options, orders):
        return 0
    address = orders.address
    serve = None if address is None else lambda server: StatusServer(server, address)
    server = SchedulerServer(deciders, options, serve)
    server.on_lease_lost = partial(exit_after, LEASE_LOST_EXIT_S, 1)
    if server.comparer is not None:
        server.comparer.on_difference = _log_difference
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(_on_stop_signal, server, number))
    with paused_collector() as resume_collector:
        server.on_synced = resume_collector
        code = await server.run(partial(_start_background_tasks, server))
    # By default this signal ends a process.
    loop.add_signal_handler(signal.SIGUSR2, _ignore)
    if server.comparer is not None:
        _log_dry_run_summary(server)
    return code


def _start_background_tasks(server: SchedulerServer, tasks: BackgroundTasks) -> None:
    """Start what a scheduler process does besides scheduling."""
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGUSR2, lambda: tasks.start_independent(_dump(server), "state dump")
    )
    reload = partial(_reload_configuration, server)
    backoff = JitteredBackoff(np.random.default_rng(), first_s=CONFIGURATION_POLL_S)
    tasks.start_restarted(reload, "configuration reload", backoff)


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
    """Wait for the API server, and refuse to run beside a competing scheduler. Raises
    CompetingSchedulerError and CredentialError."""
    await wait_for_apiserver(options.client_config)
    if not orders.take_over and not options.dry_run:
        await refuse_competing_scheduler(deciders, options)


async def _reload_configuration(server: SchedulerServer) -> None:
    """Send the session configuration to the scheduler when its file changes; the scheduler reports
    errors."""
    batch = server.deciders.batch
    path = Path(batch.source) if batch is not None else None
    if path is None or not path.is_file():
        return
    known = path.stat().st_mtime_ns
    while True:
        await asyncio.sleep(CONFIGURATION_POLL_S)
        try:
            changed = path.stat().st_mtime_ns
            if changed != known:
                known = changed
                text = path.read_text()
                server.add_event(ConfigurationChanged(text, str(path)))
                _apply_configuration(server, text, str(path))
        except (OSError, UnicodeDecodeError) as problem:
            log_keys(
                log,
                logging.WARNING,
                "Unable to read configuration",
                file=str(path),
                err=str(problem),
            )


def _apply_configuration(server: SchedulerServer, text: str, source: str) -> None:
    """Update the reported configuration; the scheduler reports errors."""
    with contextlib.suppress(ConfigError, ContractError):
        had, batch = server.deciders.batch, server.deciders.reread(text, source).batch
        if had is None or batch is None or had.scheduler_names != batch.scheduler_names:
            return
        log_warnings(batch)
        changed = msgspec.structs.replace(server.deciders.configuration, batch=batch)
        server.deciders = msgspec.structs.replace(server.deciders, configuration=changed)


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


# Competing schedulers.


async def refuse_competing_scheduler(deciders: Deciders, options: SchedulerServerOptions) -> None:
    """Raise CompetingSchedulerError if a scheduler of another kind renews the lease of one of our
    scheduler names."""
    names = {lease_name(name): name for name in scheduler_names(deciders)}
    async with ApiClient(options.client_config) as api:
        for lease, name in names.items():
            holder = await renewing_holder(api, LEASE_NAMESPACE, lease)
            if holder and not holder.startswith(f"{SCHEDULER_NAME}_"):
                raise CompetingSchedulerError(
                    f"another scheduler schedules the pods of schedulerName {name!r}: {holder!r} "
                    f"renews lease {LEASE_NAMESPACE}/{lease}; stop it, choose another "
                    "schedulerName, or use --take-over"
                )


async def renewing_holder(api: ApiClient, namespace: str, name: str) -> str:
    """The holder that renews a lease, "" for none. Takes until the next renewal, or the lease
    duration."""
    first = await _lease(api, namespace, name)
    if first is None or not first.holder:
        return ""
    if first.holder.startswith(f"{SCHEDULER_NAME}_"):
        return first.holder
    ends = monotonic_ns() + max(1, first.spec.lease_duration_seconds or 15) * SECOND
    lease = f"{namespace}/{name}"
    log_keys(
        log, logging.INFO, "Checking whether lease is renewed", lease=lease, holder=first.holder
    )
    while monotonic_ns() < ends:
        await asyncio.sleep(LEASE_POLL_S)
        now = await _lease(api, namespace, name)
        if now is None or not now.holder:
            return ""
        if now.spec.renew_time != first.spec.renew_time:
            return now.holder
    return ""


async def _lease(api: ApiClient, namespace: str, name: str) -> Lease | None:
    """Read a lease, retrying until the server answers; None if it does not exist or may not be
    read."""
    fault = ""
    while True:
        answer = await api.send(read_lease(namespace, name, 10.0))
        if answer.is_done:
            found: Lease | None = decode_body(answer.body, Lease)
            return found
        is_refused = answer.verdict is ResponseOutcome.REFUSED
        if answer.status != 404 and error_message(answer) != fault:
            fault = error_message(answer)
            message = "Unable to read lease" if is_refused else "Unable to read lease; retrying"
            log_keys(log, logging.WARNING, message, lease=f"{namespace}/{name}", err=fault)
        if is_refused:
            return None
        await asyncio.sleep(LEASE_POLL_S)


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
