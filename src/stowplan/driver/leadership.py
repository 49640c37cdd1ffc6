"""Leadership: the election run in a thread of its own, with an event loop and a client of its own.

So neither a long decision nor a queue of requests keeps the lease from being renewed. Others read
`term` and `deadline`, and `may_write` compares the clock with them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import numpy as np

from stowplan.client.backoff import SECOND
from stowplan.client.election import Election, Role, Terms
from stowplan.client.kubeconfig import Connection
from stowplan.driver.api import ApiClient
from stowplan.driver.clocks import moment, steady
from stowplan.driver.logs import log_keys

log = logging.getLogger("stowplan.leader")

Elected = Callable[[int], None]
Lost = Callable[[str], None]
Side = Callable[[], AbstractAsyncContextManager[object]]


class Leadership:
    """elected: called with the term, in that thread. lost: called with the reason, once. beside:
    what else is to run there, so that it is not kept waiting either; None for nothing."""

    def __init__(
        self,
        connection: Connection,
        terms: Terms | None,
        dice: np.random.Generator,
        elected: Elected,
        lost: Lost,
        beside: Side | None = None,
    ) -> None:
        """terms: None to lead without asking anybody."""
        self.election = None if terms is None else Election(terms, dice)
        self._connection = connection
        self._elected = elected
        self._lost = lost
        self._beside = beside
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
        """Of leadership, 0 before the first."""
        return 1 if self.election is None else self.election.term

    @property
    def leader(self) -> str:
        """Who leads, as far as is known."""
        return "" if self.election is None else self.election.leader

    def may_write(self, term: int = 0) -> bool:
        """True while nobody else can lead. term: 0 for any."""
        if self.election is None:
            return not self._stop.is_set()
        if term and term != self.election.term:
            return False
        return self.election.may_write(steady())

    def start(self) -> None:
        """Contend, and start what runs beside; raises what that raises."""
        self._thread.start()
        self._started.wait()
        if self._fault is not None:
            raise self._fault

    def stop(self, timeout_s: float = 10.0) -> None:
        """Give the lease back, and end the thread."""
        self._stop.set()
        loop, wake = self._loop, self._wake
        if loop is not None and wake is not None and not loop.is_closed():
            loop.call_soon_threadsafe(wake.set)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        # Whatever it is, nobody renews the lease any more: the process has to hear of it.
        except Exception as fault:  # noqa: BLE001
            self._fault = fault
            if self._started.is_set():
                self._lost(f"the thread of the lease has failed: {fault!r}")
            else:
                self._started.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        beside = None
        if self._beside is not None:
            ready = asyncio.Event()
            beside = asyncio.create_task(self._side(ready))
            await asyncio.wait(
                [beside, asyncio.create_task(ready.wait())], return_when=asyncio.FIRST_COMPLETED
            )
            if beside.done():
                beside.result()
        self._started.set()
        try:
            if self.election is None:
                self._elected(1)
                await self._wake.wait()
            else:
                await self._contend(self.election)
        finally:
            if beside is not None:
                beside.cancel()
                await asyncio.gather(beside, return_exceptions=True)

    async def _side(self, ready: asyncio.Event) -> None:
        assert self._beside is not None
        async with self._beside():
            ready.set()
            await asyncio.Event().wait()

    async def _contend(self, election: Election) -> None:
        assert self._wake is not None
        async with ApiClient(self._connection) as api:
            while not self._stop.is_set():
                step = election.next(steady(), moment().micros)
                if election.role is Role.LOST:
                    keys = {"lease": self._name(election), "err": election.fault}
                    log_keys(log, logging.ERROR, "Failed to renew lease", **keys)
                    self._lost(election.fault)
                    return
                if isinstance(step, int):
                    await self._sleep((step - steady()) / SECOND)
                    continue
                await self._ask(election, api, step)
            request = election.release(steady(), moment().micros)
            if request is not None:
                await api.send(request)
                log_keys(log, logging.INFO, "Released leader lease", lease=self._name(election))

    @staticmethod
    def _name(election: Election) -> str:
        return f"{election.terms.namespace}/{election.terms.name}"

    async def _ask(self, election: Election, api: ApiClient, step: Any) -> None:
        before, leader, fault = election.role, election.leader, election.fault
        sending = asyncio.ensure_future(api.send(step))
        while not sending.done():
            # A renewal that hangs must not hide that the deadline is over.
            left_s = (election.deadline - steady()) / SECOND
            limit_s = left_s if election.role is Role.LEADING else None
            done, _ = await asyncio.wait({sending}, timeout=limit_s)
            if not done and not election.may_write(steady()):
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                return
        election.answered(sending.result(), steady())
        if election.fault and election.fault != fault:
            log.warning("lease %s: %s", election.terms.name, election.fault)
        if election.leader != leader and election.leader:
            log.info("leader: %s", election.leader)
        if before is Role.WAITING and election.role is Role.LEADING:
            log.info("leading, term %d", election.term)
            self._elected(election.term)

    async def _sleep(self, seconds: float) -> None:
        """Wait, but no longer than until somebody wants the thread to end."""
        assert self._wake is not None
        try:
            await asyncio.wait_for(self._wake.wait(), max(0.0, min(seconds, 1.0)))
        except TimeoutError:
            return
