"""Tells by an event of objects that have no effect here, when they are created."""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.cluster.controllers.api import Api
from stowplan.cluster.controllers.index import Index, PodFacts, split_key
from stowplan.cluster.controllers.recorder import Recorder
from stowplan.cluster.controllers.times import seconds
from stowplan.cluster.controllers.work import WorkQueue
from stowplan.cluster.resource import Change
from stowplan.cluster.unimplemented import PATHS, texts_about

COMPONENT = "stowplan"
REASON = "NotImplemented"
NEW_SECONDS = 60.0
"""Objects that are older were there at the start, and have been told of."""

Item = tuple[str, str, str]


class Unimplemented:
    """Path, namespace and name of new objects, to be told of."""

    name = "unimplemented"

    def __init__(self, api: Api, index: Index, recorder: Recorder) -> None:
        self.api = api
        self.recorder = recorder
        self._queue: WorkQueue[Item] = WorkQueue()

    def observe(self, change: Change, before: PodFacts | None) -> None:
        """A new object of a kind that may have no effect."""
        path = change.resource.path
        if path in PATHS and change.type == "ADDED":
            tree: dict[str, Any] = msgspec.json.decode(change.value)
            created = seconds(tree["metadata"].get("creationTimestamp"))
            if created > self.api.now - NEW_SECONDS:
                self._queue.add((path, *split_key(change)))

    def work_once(self) -> bool:
        """Tell of the next object; False if there is none."""
        item = self._queue.take(self.api.now)
        if item is None:
            return False
        found = self.api.get(*item)
        if found is not None:
            for text in texts_about(item[0], found):
                self.recorder.record(found, COMPONENT, REASON, text, type="Warning")
        return True

    @property
    def n_failing(self) -> int:
        """None: what cannot be told is not told again."""
        return 0

    def next_at(self) -> float | None:
        """When `work_once` has something to do again."""
        return self._queue.next_at()
