"""API dispatcher: performs effects concurrently, those of one pod in order.

Workers take effects as they arrive. A write is not started when its leadership term has ended; the
client checks again before the request is sent. Events have workers of their own, which leave the
server to the bindings while there are any (`client/pending_events.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from stowplan.client.api_calls import ApiCalls, ApiCallSteps, EventRetryPause, RetryPause
from stowplan.client.backoff import seconds_after
from stowplan.client.pending_events import EVENTS_AT_ONCE_MAX, PendingEvent, PendingEvents
from stowplan.client.responses import ApiResponse
from stowplan.driver.background_tasks import BackgroundTasks
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.rate_limiter import RateLimiter
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.logs import log_keys
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event

log = logging.getLogger("stowplan.writes")

BIND_WORKERS, EVENT_WORKERS = 64, EVENTS_AT_ONCE_MAX
EVENTS_DROPPED_MESSAGE = "Too many events wait; dropping further ones"
DROPS_PER_LINE = 1000
THROTTLED_MESSAGE = "API server throttled the client (429); retrying"

OutcomeHandler = Callable[[Event], None]
EffectCheck = Callable[[Effect], bool]


class ApiDispatcher:
    """may_write: whether the term of an effect still lasts. on_outcome: receives outcomes.
    n_of_ended_terms: number of effects that were not started because their term had ended. events:
    that wait to be posted.
    """

    def __init__(
        self,
        api: ApiClient,
        api_calls: ApiCalls,
        on_outcome: OutcomeHandler,
        may_write: EffectCheck,
        limiter: RateLimiter | None = None,
    ) -> None:
        self.n_of_ended_terms = 0
        self.events = PendingEvents()
        self._n_writing = 0
        self._n_waiting_by_uid = 0
        self._api = api
        self._api_calls = api_calls
        self._on_outcome = on_outcome
        self._may_write = may_write
        self._limiter = limiter or RateLimiter()
        # Effects that wait for an earlier effect of the same pod.
        self._waiting_by_uid: dict[str, deque[Any]] = {}
        self._ready: deque[Any] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._idle_recorders: deque[asyncio.Future[None]] = deque()
        self._settled = asyncio.Event()
        self._settled.set()

    def start(self, tasks: BackgroundTasks) -> None:
        """Start the workers."""
        for number in range(BIND_WORKERS):
            tasks.start(self._work(), f"API write worker {number}")
        for number in range(EVENT_WORKERS):
            tasks.start(self._post_events(), f"event worker {number}")

    @property
    def n_waiting(self) -> int:
        """Number of effects that have not been started, without events."""
        return len(self._ready) + self._n_waiting_by_uid

    @property
    def n_busy(self) -> int:
        """Number of effects that are under way, with events."""
        return self._n_writing + self.events.n_under_way

    @property
    def n_pending(self) -> int:
        """Number of effects that wait or are under way, with events."""
        return self.n_waiting + self.n_busy + len(self.events)

    @property
    def n_dropped(self) -> int:
        """Number of effects that were not started: of ended terms, and events of which too many
        waited."""
        return self.n_of_ended_terms + self.events.n_dropped

    def take(self, effect: Effect) -> None:
        """Queue an effect that is performed at the API server."""
        self._settled.clear()
        if isinstance(effect, to_do.RecordEvent):
            self._take_event(effect)
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

    def _take_event(self, effect: to_do.RecordEvent) -> None:
        """Queue an event with the time and the pod's version of now: it may wait."""
        calls = self._api_calls
        event = PendingEvent(effect, calls.clock(), calls.series.version_of(effect))
        if self.events.add(event):
            self._wake_recorders()
        elif self.events.n_dropped % DROPS_PER_LINE == 1:
            keys = {"waiting": len(self.events), "dropped": self.events.n_dropped}
            log_keys(log, logging.WARNING, EVENTS_DROPPED_MESSAGE, **keys)

    async def wait_until_settled(self, timeout_s: float) -> bool:
        """True when all queued effects are performed within the timeout; events that wait for
        another try do not count."""
        try:
            await asyncio.wait_for(self._settled.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def _work(self) -> None:
        ready, idle = self._ready, self._idle
        while True:
            while not ready:
                self._update_settled()
                await _woken(idle)
            effect = ready.popleft()
            self._n_writing += 1
            try:
                await self._perform(effect)
            finally:
                self._n_writing -= 1
                self._start_next_for(effect.uid)
                # None may have been under way: this may be the last of many writes, or the oldest
                # event has waited for long.
                self._wake_recorders()

    async def _post_events(self) -> None:
        events, clock = self.events, monotonic_ns
        while True:
            while (event := events.next(clock(), self._n_writes)) is None:
                self._update_settled()
                await _woken(self._idle_recorders)
            self._settled.clear()
            steps = event.steps or self._api_calls.record(*event[:3])
            retry_s = 0.0
            try:
                retry_s = await self._perform(event.effect, steps)
            finally:
                if retry_s:
                    again = PendingEvent(*event[:3], steps)
                    events.postpone(again, seconds_after(clock(), retry_s))
                    asyncio.get_running_loop().call_later(retry_s, self._wake_recorders)
                else:
                    events.done(event)
                # More may be posted at once by now, or one that waited for this one. This worker
                # takes the first.
                self._wake_recorders(but=1)

    @property
    def _n_writes(self) -> int:
        """Number of writes that can be under way now, without events."""
        return self._n_writing + len(self._ready)

    def _wake_recorders(self, but: int = 0) -> None:
        """Wake a worker for each event that may be posted now, but for so many."""
        if self.events and self._idle_recorders:
            n_allowed = self.events.n_allowed(monotonic_ns(), self._n_writes)
            for _ in range(n_allowed - but):
                _wake(self._idle_recorders)

    def _start_next_for(self, uid: str) -> None:
        behind = self._waiting_by_uid.get(uid)
        if behind:
            self._ready.append(behind.popleft())
            self._n_waiting_by_uid -= 1
            _wake(self._idle)
        else:
            self._waiting_by_uid.pop(uid, None)

    def _update_settled(self) -> None:
        # A shutdown does not wait for a server that does not answer.
        if self.n_busy == 0 and not self._ready and self.events.are_all_postponed:
            self._settled.set()

    async def _perform(self, effect: Effect, steps: ApiCallSteps | None = None) -> float:
        """Perform an effect. steps: its requests, None for those that it usually has. Returns the
        seconds after which `steps` are to be continued, 0 when it is done."""
        if not isinstance(effect, to_do.ReadPod) and not self._may_write(effect):
            self.n_of_ended_terms += 1
            return 0.0
        steps = steps or self._api_calls.steps(effect)
        answer: ApiResponse | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                if end.value is not None:
                    self._on_outcome(end.value)
                return 0.0
            answer = None
            if isinstance(step, EventRetryPause):
                return step.seconds
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


async def _woken(idle: deque[asyncio.Future[None]]) -> None:
    """Wait for a turn of `_wake`."""
    waiting = asyncio.get_running_loop().create_future()
    idle.append(waiting)
    await waiting


def _wake(idle: deque[asyncio.Future[None]]) -> None:
    while idle:
        waiting = idle.popleft()
        if not waiting.done():
            waiting.set_result(None)
            return
