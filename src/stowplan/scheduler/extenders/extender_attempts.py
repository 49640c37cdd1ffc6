"""Scheduling attempts that wait for extender calls (`awaiting extender`), between pop and decision.

Such a pod is in flight: events are recorded for it, and it holds no resources. The attempt ends
with the last response or when the calls time out; it is cancelled when the pod is deleted, is being
deleted or is bound by another client, and when leadership is lost.

While `extender_waits_max` attempts wait, no other pod is attempted. A limit of one keeps the
original's order, in which an attempt begins after the previous one has ended.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stowplan.framework.deciders.decider import Consultation
from stowplan.framework.status import error
from stowplan.messages.extender_api import ExtenderResponse
from stowplan.queue import QueueEntry
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.extenders.extender_calls import ExtenderCall, PendingExtenderCalls
from stowplan.scheduler.failure_handler import FailureHandler

AWAITING = "awaiting extender"


class ExtenderAttempt(msgspec.Struct):
    """A waiting attempt. calls: numbers of the calls without a response."""

    entry: QueueEntry
    consultation: Consultation
    calls: list[int]


class ExtenderAttempts:
    """Waiting attempts, by pod uid."""

    def __init__(
        self, context: SchedulerContext, calls: PendingExtenderCalls, failures: FailureHandler
    ) -> None:
        self._context = context
        self._extender_calls = calls
        self._failure_handler = failures
        self._waiting: dict[str, ExtenderAttempt] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, uid: str) -> bool:
        return uid in self._waiting

    def __iter__(self) -> Iterator[tuple[str, ExtenderAttempt]]:
        """Iterate over (uid, attempt) in the order in which they began to wait."""
        return iter(self._waiting.items())

    @property
    def is_full(self) -> bool:
        """True while no further attempt may begin."""
        return len(self._waiting) >= self._context.options.extender_waits_max

    def wait(self, entry: QueueEntry, consultation: Consultation) -> None:
        """Start the extender calls that the attempt needs and wait for them."""
        uid = entry.uid
        waiting = self._waiting[uid] = ExtenderAttempt(entry, consultation, [])
        for question in tuple(consultation.pending_requests):
            waiting.calls.append(self._extender_calls.ask(uid, question, self._replied))

    def _replied(self, call: ExtenderCall, reply: ExtenderResponse) -> None:
        waiting = self._waiting[call.uid]
        waiting.calls.remove(call.effect)
        waiting.consultation.answer(call.question, reply)

    def pop_ready(self) -> list[ExtenderAttempt]:
        """Remove and return the attempts whose calls have all ended."""
        ready = [(uid, waiting) for uid, waiting in self._waiting.items() if not waiting.calls]
        for uid, _ in ready:
            del self._waiting[uid]
        return [waiting for _, waiting in ready]

    def stop(self, uid: str) -> bool:
        """Cancel the pod's attempt; False if it has none."""
        waiting = self._waiting.pop(uid, None)
        if waiting is None:
            return False
        self._cancel_pending(waiting)
        self._context.queue.done(uid)
        return True

    def step_down(self) -> None:
        """Leadership lost: fail all waiting attempts."""
        attempts = tuple(self._waiting.values())
        self._waiting.clear()
        for waiting in attempts:
            self._cancel_pending(waiting)
            self._failure_handler.failed(waiting.entry, error("another scheduler leads"))

    def _cancel_pending(self, waiting: ExtenderAttempt) -> None:
        for number in waiting.calls:
            self._extender_calls.cancel(number)
