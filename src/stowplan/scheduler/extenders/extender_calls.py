"""Pending extender calls."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stowplan.messages.events import ExtenderFailed, ExtenderReplied
from stowplan.messages.extender_api import ExtenderRequest, ExtenderResponse, timeout_response
from stowplan.queue.options import seconds_to_ns
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.deadlines import Deadlines

TIMEOUT_GRACE_S = 0.1
"""Seconds added to a call's timeout. The driver enforces the timeout and reports the error; this is
only the fallback."""


class ExtenderCall(msgspec.Struct, frozen=True):
    """A call in progress. effect: number of its CallExtender effect."""

    effect: int
    uid: str
    question: ExtenderRequest
    on_reply: OnExtenderReply


OnExtenderReply = Callable[[ExtenderCall, ExtenderResponse], None]
"""Called once with the result of a call, unless it is cancelled."""


class PendingExtenderCalls:
    """Extender calls in progress, by effect number."""

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context
        self._extender_calls: dict[int, ExtenderCall] = {}
        self._deadlines: Deadlines[int] = Deadlines()

    def __len__(self) -> int:
        return len(self._extender_calls)

    def ask(self, uid: str, question: ExtenderRequest, on_reply: OnExtenderReply) -> int:
        """Call an extender on behalf of a pod; returns the effect number."""
        context, timeout_s = self._context, question.extender.timeout_s
        effect = context.outbox.call_extender(uid, question, timeout_s)
        self._extender_calls[effect] = ExtenderCall(effect, uid, question, on_reply)
        self._deadlines.set(effect, context.now + seconds_to_ns(timeout_s + TIMEOUT_GRACE_S))
        return effect

    def replied(self, event: ExtenderReplied) -> None:
        """An extender has responded."""
        self._ended(event.effect, ExtenderResponse(event.code, event.body))

    def failed(self, event: ExtenderFailed) -> None:
        """A call has failed."""
        self._ended(event.effect, ExtenderResponse(reason=event.reason))

    def cancel(self, effect: int) -> None:
        """Cancel a call whose response is no longer needed."""
        call = self._end(effect)
        if call is not None:
            self._context.outbox.cancel(call.uid, effect)

    def serve_due(self) -> None:
        """Fail the calls that timed out."""
        for effect in self._deadlines.due(self._context.now):
            # Ending one may have cancelled others.
            if effect in self._extender_calls:
                question = self._extender_calls[effect].question
                self._context.outbox.cancel(self._extender_calls[effect].uid, effect)
                self._ended(effect, timeout_response(question))

    def next_deadline(self) -> int | None:
        """The next time at which a call times out; None if there is none."""
        return self._deadlines.next()

    def _ended(self, effect: int, reply: ExtenderResponse) -> None:
        call = self._end(effect)
        if call is not None:
            call.on_reply(call, reply)

    def _end(self, effect: int) -> ExtenderCall | None:
        self._deadlines.clear(effect)
        return self._extender_calls.pop(effect, None)
