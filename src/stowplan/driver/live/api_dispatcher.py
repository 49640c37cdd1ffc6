"""Hands: effects carried out side by side, those about one pod in their order.

A number of workers take effects as they come. What writes is not begun once its term is over; the
client asks again before a request leaves. Events have workers of their own, so that they never keep
a binding waiting, and are dropped where far too many wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from stowplan.client.api_calls import ApiCalls, RetryPause
from stowplan.client.responses import ApiResponse
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.rate_limiter import RateLimiter
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event

log = logging.getLogger("stowplan.writes")

BIND_WORKERS, EVENT_WORKERS = 64, 32
PENDING_EVENTS_MAX = 50_000

OutcomeHandler = Callable[[Event], None]
WriteGuard = Callable[[Effect], bool]


class ApiDispatcher:
    """may_write: whether an effect's term still is. tell: takes outcomes. n_dropped: effects that
    were not begun, as their term was over or too many events waited."""

    def __init__(
        self,
        api: ApiClient,
        api_calls: ApiCalls,
        tell: OutcomeHandler,
        may_write: WriteGuard,
        limiter: RateLimiter | None = None,
    ) -> None:
        self.n_dropped = 0
        self.n_busy = 0
        self._n_waiting_by_uid = 0
        self._api = api
        self._api_calls = api_calls
        self._tell = tell
        self._may_write = may_write
        self._limiter = limiter or RateLimiter()
        # Effects that wait for an earlier one about the same pod.
        self._waiting_by_uid: dict[str, deque[Any]] = {}
        self._ready: deque[Any] = deque()
        self._records: deque[Any] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._idle_recorders: deque[asyncio.Future[None]] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        self._settled = asyncio.Event()
        self._settled.set()

    def start(self) -> None:
        """Begin to work."""
        for _ in range(BIND_WORKERS):
            self._tasks.append(asyncio.create_task(self._work(self._ready, self._idle)))
        for _ in range(EVENT_WORKERS):
            self._tasks.append(asyncio.create_task(self._work(self._records, self._idle_recorders)))

    @property
    def n_waiting(self) -> int:
        """How many effects wait to be begun, events aside."""
        return len(self._ready) + self._n_waiting_by_uid

    def take(self, effect: Effect) -> None:
        """An effect to be performed at the API server."""
        self._settled.clear()
        if isinstance(effect, to_do.RecordEvent):
            if len(self._records) >= PENDING_EVENTS_MAX:
                self.n_dropped += 1
                return
            self._records.append(effect)
            _wake(self._idle_recorders)
            return
        uid = effect.uid  # type: ignore[union-attr]
        behind = self._waiting_by_uid.get(uid)
        if behind is not None:
            behind.append(effect)
            self._n_waiting_by_uid += 1
            return
        self._waiting_by_uid[uid] = deque()
        self._ready.append(effect)
        _wake(self._idle)

    async def wait_until_settled(self, timeout_s: float) -> bool:
        """True when all that was taken has been performed within that time."""
        try:
            await asyncio.wait_for(self._settled.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Work no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def failed(self) -> BaseException | None:
        """The bug that has ended a worker, if one has."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                return task.exception()
        return None

    async def _work(self, ready: deque[Any], idle: deque[asyncio.Future[None]]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not ready:
                self._update_settled()
                waiting = loop.create_future()
                idle.append(waiting)
                await waiting
            effect = ready.popleft()
            self.n_busy += 1
            try:
                await self._perform(effect)
            finally:
                self.n_busy -= 1
                if not isinstance(effect, to_do.RecordEvent):
                    self._start_next_for(effect.uid)

    def _start_next_for(self, uid: str) -> None:
        behind = self._waiting_by_uid.get(uid)
        if behind:
            self._ready.append(behind.popleft())
            self._n_waiting_by_uid -= 1
            _wake(self._idle)
        else:
            self._waiting_by_uid.pop(uid, None)

    def _update_settled(self) -> None:
        if self.n_busy == 0 and not self._ready and not self._records:
            self._settled.set()

    async def _perform(self, effect: Effect) -> None:
        if not isinstance(effect, to_do.ReadPod) and not self._may_write(effect):
            self.n_dropped += 1
            return
        steps = self._api_calls.steps(effect)
        answer: ApiResponse | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                if end.value is not None:
                    self._tell(end.value)
                return
            answer = None
            if isinstance(step, RetryPause):
                log.info("told to wait %.1f s", step.seconds)
                await asyncio.sleep(step.seconds)
                continue
            await self._limiter.turn()
            answer = await self._api.send(step)
            if not answer.is_done and log.isEnabledFor(logging.DEBUG):
                log.debug("%s %s: %s", step.method, step.path, answer.status or answer.fault)


def _wake(idle: deque[asyncio.Future[None]]) -> None:
    while idle:
        waiting = idle.popleft()
        if not waiting.done():
            waiting.set_result(None)
            return
