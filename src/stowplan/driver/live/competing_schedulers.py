"""Competing schedulers: other processes that schedule the pods of the same scheduler names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.leader_election import Lease
from stowplan.client.requests import read_lease
from stowplan.client.responses import ResponseOutcome, decode_body, error_message
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.live.configuration_files import SCHEDULER_NAME, lease_name
from stowplan.driver.logs import log_keys
from stowplan.objects.encoding.duration import SECOND

log = logging.getLogger("stowplan.scheduler")

LEASE_POLL_S = 1.0
LEASE_NAMESPACE = "kube-system"


class CompetingSchedulerError(RuntimeError):
    """Another scheduler schedules the same pods."""


async def refuse_competing_scheduler(names: Iterable[str], client_config: ClientConfig) -> None:
    """Raise CompetingSchedulerError if a scheduler of another kind renews the lease of one of these
    scheduler names."""
    leases = {lease_name(name): name for name in names}
    async with ApiClient(client_config) as api:
        for lease, name in leases.items():
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
