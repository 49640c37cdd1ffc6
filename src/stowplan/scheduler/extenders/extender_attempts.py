"""Attempts that wait for extenders: named `awaiting extender`, between pop and decision.

Such a pod is in flight: what happens meanwhile is kept for it, and no room is held. The attempt
ends with the last answer, at the latest when the time of the calls is over; when the pod goes, is
being deleted or is bound by others; and when another scheduler leads.

While as many attempts wait as may (`extender_waits_max`), no other pod is tried. One keeps the
original's order: there the next attempt begins when the last has ended.
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
    """An attempt that waits. calls: the numbers of those that have no answer yet."""

    entry: QueueEntry
    consultation: Consultation
    calls: list[int]


class ExtenderAttempts:
    """The attempts that wait, by uid."""

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
        """Every uid with its attempt, in the order in which they began to wait."""
        return iter(self._waiting.items())

    @property
    def is_full(self) -> bool:
        """True while no other attempt may begin."""
        return len(self._waiting) >= self._context.options.extender_waits_max

    def wait(self, entry: QueueEntry, consultation: Consultation) -> None:
        """Ask what an attempt has to know, and let it wait."""
        uid = entry.uid
        waiting = self._waiting[uid] = ExtenderAttempt(entry, consultation, [])
        for question in tuple(consultation.pending_requests):
            waiting.calls.append(self._extender_calls.ask(uid, question, self._answered))

    def _answered(self, call: ExtenderCall, reply: ExtenderResponse) -> None:
        waiting = self._waiting[call.uid]
        waiting.calls.remove(call.effect)
        waiting.consultation.answer(call.question, reply)

    def pop_ready(self) -> list[ExtenderAttempt]:
        """The attempts that wait for nothing any more, taken out."""
        ready = [(uid, waiting) for uid, waiting in self._waiting.items() if not waiting.calls]
        for uid, _ in ready:
            del self._waiting[uid]
        return [waiting for _, waiting in ready]

    def stop(self, uid: str) -> bool:
        """The attempt of a pod is over without a decision; False where it does not wait."""
        waiting = self._waiting.pop(uid, None)
        if waiting is None:
            return False
        self._cancel_pending(waiting)
        self._context.queue.done(uid)
        return True

    def step_down(self) -> None:
        """Another leads from now on: nothing is decided here any more."""
        attempts = tuple(self._waiting.values())
        self._waiting.clear()
        for waiting in attempts:
            self._cancel_pending(waiting)
            self._failure_handler.failed(waiting.entry, error("another scheduler leads"))

    def _cancel_pending(self, waiting: ExtenderAttempt) -> None:
        for number in waiting.calls:
            self._extender_calls.cancel(number)
