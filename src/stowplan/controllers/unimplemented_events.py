"""Records an event on new objects whose kind or fields have no effect in this cluster."""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.apis.validation.unimplemented_features import PATHS, unimplemented_warnings
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controller_runtime.work_queue import WorkQueue
from stowplan.objects.store import Store, WatchEvent

COMPONENT = "stowplan"
REASON = "NotImplemented"
NEW_SECONDS = 60.0
"""Older objects existed at the start and have their event already."""

Item = tuple[str, str, str]


class UnimplementedReporter:
    """Queue of new objects (path, namespace and name) that need an event."""

    name = "unimplemented"

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        self.api = api
        self.recorder = recorder
        self._queue: WorkQueue[Item] = WorkQueue()

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a new object of a kind that may have no effect."""
        path = change.path
        if path in PATHS and change.type == "ADDED":
            tree: dict[str, Any] = msgspec.json.decode(change.value)
            created = unix_seconds(tree["metadata"].get("creationTimestamp"))
            if created > self.api.now - NEW_SECONDS:
                self._queue.add((path, *split_key(change)))

    def work_once(self) -> bool:
        """Record the event of the next object; False if there is none."""
        item = self._queue.take(self.api.now)
        if item is None:
            return False
        found = self.api.get(*item)
        if found is not None:
            for text in unimplemented_warnings(item[0], found):
                self.recorder.record(found, COMPONENT, REASON, text, type="Warning")
        return True

    @property
    def n_failing(self) -> int:
        """Always 0: failed events are not retried."""
        return 0

    def next_at(self) -> float | None:
        """When `work_once` is due again."""
        return self._queue.next_at()
