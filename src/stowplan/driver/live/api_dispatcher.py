"""API dispatcher: performs effects concurrently, those of one pod in order.

Workers take effects as they arrive. A write is not started when its leadership term has ended; the
client checks again before the request is sent. Events have workers of their own, so that they never
delay a binding, and are dropped if too many wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from stowplan.client.api_calls import ApiCalls, RetryPause
from stowplan.client.responses import ApiResponse
from stowplan.driver.background_tasks import BackgroundTasks
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.rate_limiter import RateLimiter
from stowplan.driver.logs import log_keys
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event

log = logging.getLogger("stowplan.writes")

BIND_WORKERS, EVENT_WORKERS = 64, 32
PENDING_EVENTS_MAX = 50_000
THROTTLED_MESSAGE = "API server throttled the client (429); retrying"

OutcomeHandler = Callable[[Event], None]
EffectCheck = Callable[[Effect], bool]


class ApiDispatcher:
    """may_write: whether the term of an effect still lasts. on_outcome: receives outcomes.
    n_dropped: number of effects that were not started, because their term had ended or too many
    events waited.
    """

    def __init__(
        self,
        api: ApiClient,
        api_calls: ApiCalls,
        on_outcome: OutcomeHandler,
        may_write: EffectCheck,
        limiter: RateLimiter | None = None,
    ) -> None:
        self.n_dropped = 0
        self.n_busy = 0
        self._n_waiting_by_uid = 0
        self._api = api
        self._api_calls = api_calls
        self._on_outcome = on_outcome
        self._may_write = may_write
        self._limiter = limiter or RateLimiter()
        # Effects that wait for an earlier effect of the same pod.
        self._waiting_by_uid: dict[str, deque[Any]] = {}
        self._ready: deque[Any] = deque()
        self._records: deque[Any] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._idle_recorders: deque[asyncio.Future[None]] = deque()
        self._settled = asyncio.Event()
        self._settled.set()

    def start(self, tasks: BackgroundTasks) -> None:
        """Start the workers."""
        for number in range(BIND_WORKERS):
            tasks.start(self._work(self._ready, self._idle), f"API write worker {number}")
        for number in range(EVENT_WORKERS):
            work = self._work(self._records, self._idle_recorders)
            tasks.start(work, f"event worker {number}")

    @property
    def n_waiting(self) -> int:
        """Number of effects that have not been started, without events."""
        return len(self._ready) + self._n_waiting_by_uid

    def take(self, effect: Effect) -> None:
        """Queue an effect that is performed at the API server."""
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
        """True when all queued effects are performed within the timeout."""
        try:
            await asyncio.wait_for(self._settled.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

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
                    self._on_outcome(end.value)
                return
            answer = None
            if isinstance(step, RetryPause):
                duration = f"{step.seconds:.1f}s"
                log_keys(log, logging.INFO, THROTTLED_MESSAGE, duration=duration)
                await asyncio.sleep(step.seconds)
                continue
            await self._limiter.turn()
            answer = await self._api.send(step)
            if not answer.is_done and log.isEnabledFor(logging.DEBUG):
                keys = {"method": step.method, "path": step.path}
                err = answer.fault or str(answer.status)
                log_keys(log, logging.DEBUG, "API request failed", **keys, err=err)


def _wake(idle: deque[asyncio.Future[None]]) -> None:
    while idle:
        waiting = idle.popleft()
        if not waiting.done():
            waiting.set_result(None)
            return
