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
from stowplan.objects.pod import Pod
from stowplan.queue import PodRecord
from stowplan.queue.pod_record import PodState
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.extenders.extender_calls import ExtenderCall, PendingExtenderCalls
from stowplan.scheduler.failure_handler import FailureHandler
from stowplan.scheduler.pods.transitions import PodEvent


class ExtenderAttempt(msgspec.Struct):
    """A waiting attempt. calls: numbers of the calls without a response."""

    entry: PodRecord
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

    def calls_of(self, uid: str) -> list[int]:
        """Numbers of the pending calls of a waiting attempt."""
        return self._waiting[uid].calls

    @property
    def is_full(self) -> bool:
        """True while no further attempt may begin."""
        return len(self._waiting) >= self._context.options.extender_waits_max

    def wait(self, entry: PodRecord, consultation: Consultation) -> None:
        """Start the extender calls that the attempt needs and wait for them."""
        uid = entry.uid
        entry.state = PodState.AWAITING_EXTENDER
        waiting = self._waiting[uid] = ExtenderAttempt(entry, consultation, [])
        for question in tuple(consultation.pending_requests):
            waiting.calls.append(self._extender_calls.ask(uid, question))

    def replied(self, record: PodRecord, answer: tuple[ExtenderCall, ExtenderResponse]) -> None:
        """A call of a waiting attempt has ended."""
        call, reply = answer
        waiting = self._waiting[record.uid]
        waiting.calls.remove(call.effect)
        waiting.consultation.answer(call.question, reply)

    def pop_ready(self) -> list[ExtenderAttempt]:
        """Remove and return the attempts whose calls have all ended."""
        ready = [(uid, waiting) for uid, waiting in self._waiting.items() if not waiting.calls]
        for uid, waiting in ready:
            del self._waiting[uid]
            waiting.entry.state = PodState.IN_FLIGHT
        return [waiting for _, waiting in ready]

    def pod_bound(self, record: PodRecord, _: Pod) -> None:
        """Another client bound the pod: cancel its attempt."""
        self._stop(record)
        self._context.table.drop(record.uid, PodState.BOUND)

    def pod_deleted(self, record: PodRecord, _: Pod) -> None:
        """The pod was deleted: cancel its attempt."""
        self._stop(record)
        self._context.table.drop(record.uid, PodState.DELETED)

    def pod_left_alone(self, record: PodRecord, _: object) -> None:
        """No lane has the pod's scheduler name any more: cancel its attempt."""
        self._stop(record)
        self._context.queue.nominator.drop(record.uid)
        self._context.table.drop(record.uid, PodState.LEFT_ALONE)

    def pod_terminating(self, record: PodRecord, change: tuple[Pod, Pod]) -> None:
        """The pod is being deleted: cancel its attempt."""
        self._stop(record)
        record.state = PodState.SKIPPED
        self._context.record_skip_deleting(change[0])

    def _stop(self, record: PodRecord) -> None:
        uid = record.uid
        self._cancel_pending(self._waiting.pop(uid))
        self._context.queue.done(uid)

    def step_down(self) -> None:
        """Leadership lost: fail all waiting attempts."""
        for waiting in tuple(self._waiting.values()):
            self._context.table.transition(waiting.entry, PodEvent.LEADER_LOST)

    def leader_lost(self, record: PodRecord, _: object) -> None:
        """Fail an attempt."""
        self._cancel_pending(self._waiting.pop(record.uid))
        self._failure_handler.failed(record, error("another scheduler leads"))

    def _cancel_pending(self, waiting: ExtenderAttempt) -> None:
        for number in waiting.calls:
            self._extender_calls.cancel(number)
