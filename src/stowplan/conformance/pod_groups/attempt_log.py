"""AttemptLog: what happens in one attempt of a pod group script."""

from __future__ import annotations

from typing import Any

from stowplan.conformance.pod_groups.scripted_api import ScriptedApi
from stowplan.messages.effects import RecordEvent
from stowplan.objects.scheduling_group import POD_GROUP_SCHEDULED, SchedulingGroup
from stowplan.scheduler.failure_handler import FailedAttempt

Answer = dict[str, Any]


class AttemptLog:
    """The parts of an attempt so far, as answers show them."""

    def __init__(self, api: ScriptedApi) -> None:
        self._api = api
        self.attempt: Answer = {}
        self._events: list[str] = []

    def begin(self) -> None:
        """A new attempt, or a step without one."""
        self.attempt = {}
        self._events = []
        self._api.nominated.clear()

    def end(self) -> Answer:
        """The attempt; empty if nothing happened."""
        found = dict(self.attempt)
        if self._api.nominated:
            found["nominatedNodeNames"] = dict(self._api.nominated)
        if self._events:
            found["events"] = sorted(self._events)
        if "evicted" in found:
            found["evicted"] = sorted(found["evicted"])
        return found

    def failed(self, failure: FailedAttempt) -> None:
        """A pod returned to the queue."""
        found: Answer = {"reason": failure.reason, "message": failure.message}
        if failure.plugins:
            found["plugins"] = sorted(failure.plugins)
        if failure.nominated_node:
            found["nominated"] = failure.nominated_node
        self.attempt.setdefault("failed", {})[failure.key] = found

    def recorded(self, event: RecordEvent) -> None:
        """An event was recorded."""
        related = ""
        if event.reason == "Preempted":
            kind, uid = event.note.split()[2:4]
            related = f" related={self._key_of(kind, uid)}"
        where = f"{event.namespace}/{event.name}"
        self._events.append(f"{event.type} {event.reason} {where}{related}: {event.note}")

    def _key_of(self, kind: str, uid: str) -> str:
        """The key of the preemptor of this uid."""
        known = self._api.pods if kind == "pod" else self._api.groups
        return next((key for key, one in known.items() if one.uid == uid), uid)


def condition_of(group: SchedulingGroup) -> list[str]:
    """Type, status, reason and message of the group's condition; empty for none."""
    for one in group.status.conditions:
        if one.type == POD_GROUP_SCHEDULED:
            return [one.type, one.status, one.reason, one.message]
    return []
