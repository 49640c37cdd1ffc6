"""Leader election in a thread of its own, with its own event loop and client.

So neither a long decision nor a queue of requests delays the renewal of the lease. Other threads
read `term` and `deadline`; `may_write` compares the clock with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import numpy as np

from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.leader_election import ElectionRole, LeaderElectionConfig, LeaderElector
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.clocks import monotonic_ns, request_time
from stowplan.driver.logs import log_keys
from stowplan.objects.encoding.duration import SECOND

log = logging.getLogger("stowplan.leader")

ElectedHandler = Callable[[int], None]
LeaseLostHandler = Callable[[str], None]
LeadershipThreadService = Callable[[], AbstractAsyncContextManager[object]]


class LeaderElectionThread:
    """elected: called with the term, in this thread. lost: called with the reason, once. service:
    to run in this thread, so that the main loop does not delay it; None for none."""

    def __init__(
        self,
        client_config: ClientConfig,
        election_config: LeaderElectionConfig | None,
        rng: np.random.Generator,
        elected: ElectedHandler,
        lost: LeaseLostHandler,
        service: LeadershipThreadService | None = None,
    ) -> None:
        """election_config: None to lead without election."""
        self.election = None if election_config is None else LeaderElector(election_config, rng)
        self._client_config = client_config
        self._elected = elected
        self._lost = lost
        self._service = service
        self._stop = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._started = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    @property
    def leads(self) -> bool:
        """True while writing is allowed."""
        return self.may_write()

    @property
    def term(self) -> int:
        """Leadership term, 0 before the first."""
        return 1 if self.election is None else self.election.term

    @property
    def leader(self) -> str:
        """Last known leader."""
        return "" if self.election is None else self.election.leader

    @property
    def leader_since(self) -> str:
        """When the last known leader acquired the lease, in RFC 3339; "" if that is not known."""
        return "" if self.election is None else self.election.acquired

    def may_write(self, term: int = 0) -> bool:
        """True while this process leads. term: 0 for any."""
        if self.election is None:
            return not self._stop.is_set()
        if term and term != self.election.term:
            return False
        return self.election.may_write(monotonic_ns())

    def start(self) -> None:
        """Start the election and the service; raises the errors of the service."""
        self._thread.start()
        self._started.wait()
        if self._fault is not None:
            raise self._fault

    def stop(self, timeout_s: float = 10.0) -> None:
        """Release the lease and end the thread."""
        self._stop.set()
        loop, wake = self._loop, self._wake
        if loop is not None and wake is not None and not loop.is_closed():
            loop.call_soon_threadsafe(wake.set)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        # After any exception the lease is not renewed any more: the process must stop.
        except Exception as fault:  # noqa: BLE001
            self._fault = fault
            if self._started.is_set():
                self._lost(f"leader election thread failed: {fault!r}")
            else:
                self._started.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        service = contextlib.nullcontext() if self._service is None else self._service()
        async with service:
            self._started.set()
            if self.election is None:
                self._elected(1)
                await self._wake.wait()
            else:
                await self._run_election(self.election)

    async def _run_election(self, election: LeaderElector) -> None:
        assert self._wake is not None
        async with ApiClient(self._client_config) as api:
            while not self._stop.is_set():
                step = election.next(monotonic_ns(), request_time().micros)
                if election.role is ElectionRole.LOST:
                    keys = {"lease": self._name(election), "err": election.fault}
                    log_keys(log, logging.ERROR, "Failed to renew lease", **keys)
                    self._lost(election.fault)
                    return
                if isinstance(step, int):
                    await self._sleep((step - monotonic_ns()) / SECOND)
                    continue
                await self._ask(election, api, step)
            request = election.release(monotonic_ns(), request_time().micros)
            if request is not None:
                await api.send(request)
                log_keys(log, logging.INFO, "Released leader lease", lease=self._name(election))

    @staticmethod
    def _name(election: LeaderElector) -> str:
        return f"{election.election_config.namespace}/{election.election_config.name}"

    async def _ask(self, election: LeaderElector, api: ApiClient, step: Any) -> None:
        before, leader, fault = election.role, election.leader, election.fault
        sending = asyncio.ensure_future(api.send(step))
        while not sending.done():
            # A hanging renewal must not hide that the deadline has passed.
            left_s = (election.deadline - monotonic_ns()) / SECOND
            limit_s = left_s if election.role is ElectionRole.LEADING else None
            done, _ = await asyncio.wait({sending}, timeout=limit_s)
            if not done and not election.may_write(monotonic_ns()):
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                return
        election.answered(sending.result(), monotonic_ns())
        if election.fault and election.fault != fault:
            keys = {"lease": self._name(election), "err": election.fault}
            log_keys(log, logging.WARNING, "Unable to acquire or renew lease; retrying", **keys)
        if election.leader != leader and election.leader:
            log_keys(log, logging.INFO, "New leader elected", identity=election.leader)
        if before is ElectionRole.WAITING and election.role is ElectionRole.LEADING:
            keys = {"lease": self._name(election)}
            log_keys(log, logging.INFO, "Successfully acquired lease", **keys, term=election.term)
            self._elected(election.term)

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but wake when `stop` is called."""
        assert self._wake is not None
        try:
            await asyncio.wait_for(self._wake.wait(), max(0.0, min(seconds, 1.0)))
        except TimeoutError:
            return
