"""PodTable: every pod that the scheduler knows, and one record for each that is pending."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from stowplan.objects.pod import Pod
from stowplan.queue import PodRecord
from stowplan.queue.pod_record import PodState
from stowplan.scheduler.pods.transitions import BULK_METHODS, TRANSITIONS, PodEvent

Handler = Callable[[PodRecord, Any], Any]
"""Carries out a transition. Its second argument depends on the event; what it returns too."""


class PodMessage(Protocol):
    """A message about a pod."""

    @property
    def uid(self) -> str:
        """Uid of the pod."""


class PodOutcome(PodMessage, Protocol):
    """The outcome of an effect about a pod."""

    @property
    def effect(self) -> int:
        """Number of the effect."""


class PodTable:
    """pods: latest version of every pod, pending and bound, by `NAMESPACE/NAME`. records: by uid,
    of the pods that are in the queue, in an attempt or in a binding cycle.

    A pod without a record is bound, waits for a session, or is another scheduler's: that follows
    from the pod itself, and a record per bound pod would cost memory.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.records: dict[str, PodRecord] = {}
        self._handlers: dict[PodEvent, dict[PodState, Handler]] = {}

    def connect(self, owners: Mapping[str, object]) -> None:
        """Look up the methods that TRANSITIONS names. owners: by name."""
        for (state, event), row in TRANSITIONS.items():
            if row.method not in BULK_METHODS:
                owner, _, name = row.method.partition(".")
                handlers = self._handlers.setdefault(event, {})
                handlers[state] = getattr(owners[owner], name)

    def transition(self, record: PodRecord, event: PodEvent, about: Any = None) -> Any:
        """Carry out the transition of an event and return the method's result; None, without
        effect, where the record's state has no transition for the event."""
        handler = self._handlers[event].get(record.state)
        return None if handler is None else handler(record, about)

    def outcome(self, kind: PodEvent, event: PodOutcome) -> None:
        """Carry out the transition of an outcome; a record that no longer awaits it is left
        alone."""
        record = self.records.get(event.uid)
        if record is not None and event.effect in record.binding.awaits:
            self.transition(record, kind, event)

    def message(self, kind: PodEvent, event: PodMessage) -> None:
        """Carry out the transition of another message about a pod."""
        record = self.records.get(event.uid)
        if record is not None:
            self.transition(record, kind, event)

    def drop(self, uid: str, state: PodState) -> None:
        """End a record: the pod is bound, deleted, or waits for a session again."""
        self.records.pop(uid).state = state
