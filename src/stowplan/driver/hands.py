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

from stowplan.client.answers import Answer
from stowplan.client.performing import Pause, Performer
from stowplan.driver.api import ApiClient
from stowplan.driver.limits import Limiter
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event

log = logging.getLogger("stowplan.writes")

BINDERS, RECORDERS = 64, 32
WAITING_RECORDS_MAX = 50_000

Tell = Callable[[Event], None]
MayWrite = Callable[[Effect], bool]


class Hands:
    """may_write: whether an effect's term still is. tell: takes outcomes. n_dropped: effects that
    were not begun, as their term was over or too many events waited."""

    def __init__(
        self,
        api: ApiClient,
        performer: Performer,
        tell: Tell,
        may_write: MayWrite,
        limiter: Limiter | None = None,
    ) -> None:
        self.n_dropped = 0
        self.n_busy = 0
        self._n_behind = 0
        self._api = api
        self._performer = performer
        self._tell = tell
        self._may_write = may_write
        self._limiter = limiter or Limiter()
        # Effects that wait for an earlier one about the same pod.
        self._behind: dict[str, deque[Any]] = {}
        self._ready: deque[Any] = deque()
        self._records: deque[Any] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._idle_recorders: deque[asyncio.Future[None]] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        self._at_rest = asyncio.Event()
        self._at_rest.set()

    def start(self) -> None:
        """Begin to work."""
        for _ in range(BINDERS):
            self._tasks.append(asyncio.create_task(self._work(self._ready, self._idle)))
        for _ in range(RECORDERS):
            self._tasks.append(asyncio.create_task(self._work(self._records, self._idle_recorders)))

    @property
    def n_waiting(self) -> int:
        """How many effects wait to be begun, events aside."""
        return len(self._ready) + self._n_behind

    def take(self, effect: Effect) -> None:
        """An effect to be performed at the API server."""
        self._at_rest.clear()
        if isinstance(effect, to_do.RecordEvent):
            if len(self._records) >= WAITING_RECORDS_MAX:
                self.n_dropped += 1
                return
            self._records.append(effect)
            _wake(self._idle_recorders)
            return
        uid = effect.uid  # type: ignore[union-attr]
        behind = self._behind.get(uid)
        if behind is not None:
            behind.append(effect)
            self._n_behind += 1
            return
        self._behind[uid] = deque()
        self._ready.append(effect)
        _wake(self._idle)

    async def settled(self, timeout_s: float) -> bool:
        """True when all that was taken has been performed within that time."""
        try:
            await asyncio.wait_for(self._at_rest.wait(), timeout_s)
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
                self._look_around()
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
                    self._next_about(effect.uid)

    def _next_about(self, uid: str) -> None:
        behind = self._behind.get(uid)
        if behind:
            self._ready.append(behind.popleft())
            self._n_behind -= 1
            _wake(self._idle)
        else:
            self._behind.pop(uid, None)

    def _look_around(self) -> None:
        if self.n_busy == 0 and not self._ready and not self._records:
            self._at_rest.set()

    async def _perform(self, effect: Effect) -> None:
        if not isinstance(effect, to_do.ReadPod) and not self._may_write(effect):
            self.n_dropped += 1
            return
        steps = self._performer.steps(effect)
        answer: Answer | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                if end.value is not None:
                    self._tell(end.value)
                return
            answer = None
            if isinstance(step, Pause):
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
