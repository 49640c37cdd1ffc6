"""Pending extender calls."""

from __future__ import annotations

import msgspec

from stowplan.messages.events import ExtenderFailed, ExtenderReplied
from stowplan.messages.extender_api import ExtenderRequest, ExtenderResponse, timeout_response
from stowplan.scheduler.pending_effects import PendingEffects
from stowplan.scheduler.pods.transitions import PodEvent

TIMEOUT_GRACE_S = 0.1
"""Seconds added to a call's timeout. The driver enforces the timeout and reports the error; this is
only the fallback."""


class ExtenderCall(msgspec.Struct, frozen=True):
    """A call in progress. effect: number of its CallExtender effect."""

    effect: int
    uid: str
    question: ExtenderRequest


class PendingExtenderCalls(PendingEffects[ExtenderCall]):
    """Extender calls in progress, by effect number."""

    def ask(self, uid: str, question: ExtenderRequest) -> int:
        """Call an extender on behalf of a pod; returns the effect number."""
        timeout_s = question.extender.timeout_s
        effect = self._context.outbox.call_extender(uid, question, timeout_s)
        call = ExtenderCall(effect, uid, question)
        self.add(effect, call, timeout_s + TIMEOUT_GRACE_S)
        return effect

    def replied(self, event: ExtenderReplied) -> None:
        """An extender has responded."""
        self._ended(event.effect, ExtenderResponse(event.code, event.body))

    def failed(self, event: ExtenderFailed) -> None:
        """A call has failed."""
        self._ended(event.effect, ExtenderResponse(reason=event.reason))

    def serve_due(self) -> None:
        """Fail the calls that timed out."""
        for effect in self.overdue():
            # Ending one may have cancelled others.
            call = self.get(effect)
            if call is not None:
                self._context.outbox.cancel(call.uid, effect)
                self._ended(effect, timeout_response(call.question))

    def _ended(self, effect: int, reply: ExtenderResponse) -> None:
        call = self.end(effect)
        table = self._context.table
        record = None if call is None else table.records.get(call.uid)
        if record is not None:
            table.transition(record, PodEvent.EXTENDER_REPLIED, (call, reply))
