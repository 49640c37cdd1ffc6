"""Calls: extenders that have been asked and have not answered yet."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stowplan.messages.events import ExtenderFailed, ExtenderReplied
from stowplan.messages.extender_api import ExtenderRequest, ExtenderResponse, timeout_response
from stowplan.queue.options import seconds_to_ns
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.deadlines import Deadlines

TIMEOUT_GRACE_S = 0.1
"""Whoever makes a call keeps its time and says what went wrong; only so much later it is given up
here."""


class ExtenderCall(msgspec.Struct, frozen=True):
    """A question under way. effect: the number of the effect that asks it."""

    effect: int
    uid: str
    question: ExtenderRequest
    answered: OnExtenderReply


OnExtenderReply = Callable[[ExtenderCall, ExtenderResponse], None]
"""Told once what came of a call, unless it is cancelled."""


class PendingExtenderCalls:
    """The calls under way, by the number of the effect."""

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context
        self._extender_calls: dict[int, ExtenderCall] = {}
        self._deadlines: Deadlines[int] = Deadlines()

    def __len__(self) -> int:
        return len(self._extender_calls)

    def ask(self, uid: str, question: ExtenderRequest, answered: OnExtenderReply) -> int:
        """Ask an extender for a pod's sake; returns the number of the effect."""
        context, timeout_s = self._context, question.extender.timeout_s
        effect = context.outbox.call_extender(uid, question, timeout_s)
        self._extender_calls[effect] = ExtenderCall(effect, uid, question, answered)
        self._deadlines.set(effect, context.now + seconds_to_ns(timeout_s + TIMEOUT_GRACE_S))
        return effect

    def replied(self, event: ExtenderReplied) -> None:
        """An extender has answered."""
        self._ended(event.effect, ExtenderResponse(event.code, event.body))

    def failed(self, event: ExtenderFailed) -> None:
        """It has not, and will not."""
        self._ended(event.effect, ExtenderResponse(reason=event.reason))

    def cancel(self, effect: int) -> None:
        """Nobody waits for an answer any more."""
        call = self._end(effect)
        if call is not None:
            self._context.outbox.cancel(call.uid, effect)

    def serve_due(self) -> None:
        """Give up the calls whose time is over."""
        for effect in self._deadlines.due(self._context.now):
            # The end of one call may have cancelled others.
            if effect in self._extender_calls:
                question = self._extender_calls[effect].question
                self._context.outbox.cancel(self._extender_calls[effect].uid, effect)
                self._ended(effect, timeout_response(question))

    def next_deadline(self) -> int | None:
        """When the time of the next call is over."""
        return self._deadlines.next()

    def _ended(self, effect: int, reply: ExtenderResponse) -> None:
        call = self._end(effect)
        if call is not None:
            call.answered(call, reply)

    def _end(self, effect: int) -> ExtenderCall | None:
        self._deadlines.clear(effect)
        return self._extender_calls.pop(effect, None)
