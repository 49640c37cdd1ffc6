"""Process: a live scheduler as a program: signals, refusals at the start, reports of a dry run."""

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

from stowplan.assembly.deciders import Deciders
from stowplan.client.leader_election import Lease
from stowplan.client.requests import read_lease
from stowplan.client.responses import ResponseOutcome, decode_body, error_message
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.apiserver_readiness import wait_for_apiserver
from stowplan.driver.clocks import monotonic_ns
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
from stowplan.driver.live.status import write_state_dump
from stowplan.framework import ConfigError, ContractError
from stowplan.messages.events import ConfigurationChanged
from stowplan.objects.encoding.duration import SECOND

log = logging.getLogger("stowplan.scheduler")

LEASE_POLL_S = 1.0
LEASE_NAMESPACE = "kube-system"
LEASE_LOST_EXIT_S = 5.0
CONFIGURATION_POLL_S = 2.0


class CompetingSchedulerError(RuntimeError):
    """Somebody else schedules the same pods."""


class ProcessOptions(msgspec.Struct, frozen=True):
    """What the command line says beside the options of the scheduler."""

    address: ListenAddress | None = None
    take_over: bool = False


def run(deciders: Deciders, options: SchedulerServerOptions, orders: ProcessOptions) -> int:
    """Schedule until a signal comes; the exit code. Raises Taken, ConfigError, ContractError,
    CredentialError and AddressError."""
    code = asyncio.run(_run(deciders, options, orders))
    # Who is ending already need not be told again.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return code


async def _run(deciders: Deciders, options: SchedulerServerOptions, orders: ProcessOptions) -> int:
    if not await _wait_for_startup(deciders, options, orders):
        return 0
    address = orders.address
    serve = None if address is None else lambda live: StatusServer(live, address)
    live = SchedulerServer(deciders, options, serve)
    live.on_lease_lost = partial(exit_after, LEASE_LOST_EXIT_S, 1)
    if live.comparer is not None:
        live.comparer.on_difference = lambda difference: log.info("%s", difference_text(difference))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(_on_stop_signal, live, number))
    loop.add_signal_handler(signal.SIGUSR2, partial(_on_dump_signal, live, set()))
    rereading = asyncio.create_task(_reload_configuration(live))
    try:
        code = await live.run()
    finally:
        rereading.cancel()
    if live.comparer is not None:
        _log_dry_run_summary(live)
    return code


async def _wait_for_startup(
    deciders: Deciders, options: SchedulerServerOptions, orders: ProcessOptions
) -> bool:
    """Wait until the cluster answers and nobody else decides our pods; False where a signal came
    first. Raises Taken and CredentialError."""
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
    """Wait until the cluster answers; raises Taken and CredentialError."""
    await wait_for_apiserver(options.client_config)
    if not orders.take_over and not options.dry_run:
        await refuse_competing_scheduler(deciders, options)


async def _reload_configuration(live: SchedulerServer) -> None:
    """Tell the scheduler when the file of its sessions has changed; it says what it makes of it."""
    batch = live.deciders.batch
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
                live.tell(ConfigurationChanged(text, str(path)))
                _apply_configuration(live, text, str(path))
        except (OSError, UnicodeDecodeError) as problem:
            log.warning("%s: %s", path, problem)


def _apply_configuration(live: SchedulerServer, text: str, source: str) -> None:
    """What holds from now on, for those who ask; what is wrong with it the scheduler says."""
    with contextlib.suppress(ConfigError, ContractError):
        had, batch = live.deciders.batch, live.deciders.reread(text, source).batch
        if had is None or batch is None or had.scheduler_names != batch.scheduler_names:
            return
        log_warnings(batch)
        changed = msgspec.structs.replace(live.deciders.configuration, batch=batch)
        live.deciders = msgspec.structs.replace(live.deciders, configuration=changed)


def _on_stop_signal(live: SchedulerServer, number: int) -> None:
    log.info("%s: stopping", signal.Signals(number).name)
    live.stop()


def _on_dump_signal(live: SchedulerServer, under_way: set[asyncio.Task[None]]) -> None:
    task = asyncio.create_task(_dump(live))
    under_way.add(task)
    task.add_done_callback(under_way.discard)


async def _dump(live: SchedulerServer) -> None:
    try:
        log.info(
            "state written to %s", await live.call_between_handles(lambda: write_state_dump(live))
        )
    except TimeoutError:
        log.warning("state not written: a session takes too long")
    except OSError as problem:
        log.warning("state not written: %s", problem)


def exit_after(seconds: float, code: int) -> None:
    """End the process with this code, whatever keeps it, unless it has ended by itself."""
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()


# Other schedulers.


async def refuse_competing_scheduler(deciders: Deciders, options: SchedulerServerOptions) -> None:
    """Raises Taken where a lease that whoever schedules one of our names is expected to hold is
    being renewed by a scheduler of another kind."""
    names = {lease_name(name): name for name in scheduler_names(deciders)}
    async with ApiClient(options.client_config) as api:
        for lease, name in names.items():
            holder = await renewing_holder(api, LEASE_NAMESPACE, lease)
            if holder and not holder.startswith(f"{SCHEDULER_NAME}_"):
                raise CompetingSchedulerError(
                    f"schedulerName {name!r}: got the lease {LEASE_NAMESPACE}/{lease} being "
                    f"renewed by {holder!r}, wanted nobody else scheduling these pods (stop it, "
                    "choose another schedulerName, or say --take-over)"
                )


async def renewing_holder(api: ApiClient, namespace: str, name: str) -> str:
    """Who renews a lease, "" for nobody. It takes until it is renewed, or its duration."""
    first = await _lease(api, namespace, name)
    if first is None or not first.holder:
        return ""
    if first.holder.startswith(f"{SCHEDULER_NAME}_"):
        return first.holder
    ends = monotonic_ns() + max(1, first.spec.lease_duration_seconds or 15) * SECOND
    log.info("lease %s/%s names %s: looking whether it is renewed", namespace, name, first.holder)
    while monotonic_ns() < ends:
        await asyncio.sleep(LEASE_POLL_S)
        now = await _lease(api, namespace, name)
        if now is None or not now.holder:
            return ""
        if now.spec.renew_time != first.spec.renew_time:
            return now.holder
    return ""


async def _lease(api: ApiClient, namespace: str, name: str) -> Lease | None:
    """A lease, asked for until the server says; None where there is none, or we may not see it."""
    fault = ""
    while True:
        answer = await api.send(read_lease(namespace, name, 10.0))
        if answer.is_done:
            found: Lease | None = decode_body(answer.body, Lease)
            return found
        is_said = answer.verdict is ResponseOutcome.REFUSED
        if answer.status != 404 and error_message(answer) != fault:
            fault = error_message(answer)
            more = "" if is_said else "; looking again"
            log.warning("lease %s/%s: %s%s", namespace, name, fault, more)
        if is_said:
            return None
        await asyncio.sleep(LEASE_POLL_S)


# Dry runs.


def _log_dry_run_summary(live: SchedulerServer) -> None:
    comparer = live.comparer
    assert comparer is not None
    comparer.compare_all(monotonic_ns())
    counts = comparer.counts
    log.info(
        "dry run: %d placements compared: %d the same, %d equally good, %d on another node, %d "
        "refused here; of those refused there %d refused here too, %d placed here; %d more placed "
        "here that wait there; %d evictions wanted",
        counts[SAME] + counts[AS_GOOD] + counts[OTHER] + counts[THEIRS_ONLY],
        counts[SAME],
        counts[AS_GOOD],
        counts[OTHER],
        counts[THEIRS_ONLY],
        counts[REFUSED],
        counts[OURS_ONLY],
        len(comparer.ours_only()),
        comparer.n_evictions,
    )


def difference_text(difference: DecisionDifference) -> str:
    """A difference in a line."""
    why = f" ({difference.why})" if difference.why else ""
    ours = difference.ours or "nowhere"
    return f"{difference.pod}: here {ours}{why}, there {difference.theirs or 'nowhere'}"
