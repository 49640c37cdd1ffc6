"""What every controller is: a queue of keys, fed by changes, looked at one at a time."""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.resource import StoreChange
from stowplan.controllers.runtime.controller_client import ControllerClient
from stowplan.controllers.runtime.event_recorder import EventRecorder
from stowplan.controllers.runtime.object_index import Key, ObjectIndex, PodFacts
from stowplan.controllers.runtime.work_queue import WorkQueue


class Controller:
    """Base of the controllers.

    `observe` is called for every change, from inside the write that made it: it may only add
    keys to the queue. `sync` looks at one key with what is stored now, and writes.
    """

    name = ""
    path = ""
    """Of the objects that keys name; "" where they are of several kinds."""

    def __init__(self, api: ControllerClient, index: ObjectIndex, recorder: EventRecorder) -> None:
        self.api = api
        self.index = index
        self.recorder = recorder
        self.queue: WorkQueue[Key] = WorkQueue()

    def observe(self, change: StoreChange, before: PodFacts | None) -> None:
        """Queue what this change concerns. before: of a changed pod, its facts until now."""
        raise NotImplementedError

    def sync(self, key: Key) -> None:
        """Bring one object forward. Raises ApiError to be asked again later."""
        raise NotImplementedError

    def work_once(self) -> bool:
        """Look at the next key that is due; False if there is none."""
        key = self.queue.take(self.api.now)
        if key is None:
            return False
        try:
            self.sync(key)
        except ApiError as error:
            if error.code != 404:
                self.queue.retry(key, self.api.now)
        # Whatever it is, it is of this one object: the others are looked at.
        except Exception as error:  # noqa: BLE001
            self._failed(key, error)
        else:
            self.queue.forget(key)
        return True

    def object_of(self, key: Key) -> dict[str, Any] | None:
        """The object that a key names; None if it is not there, or is of no one kind."""
        return self.api.get(self.path, *key) if self.path else None

    def _failed(self, key: Key, error: Exception) -> None:
        """Note a fault, tell of it on the object, and look at that again later."""
        self.queue.retry(key, self.api.now)
        self.api.faults.add(self.name, "/".join(key).strip("/"), error)
        found = self.object_of(key)
        if found is not None:
            text = f"error syncing: {error!r}"
            self.recorder.record(found, self.name, "SyncError", text, type="Warning")

    @property
    def n_failing(self) -> int:
        """Objects whose last look failed."""
        return self.queue.n_failing

    @staticmethod
    def decoded(value: bytes | None) -> dict[str, Any] | None:
        """The tree of a stored object's bytes; None of None."""
        tree: dict[str, Any] | None = None if value is None else msgspec.json.decode(value)
        return tree

    def next_at(self) -> float | None:
        """When `work_once` has something to do again; None: when something changes."""
        return self.queue.next_at()
