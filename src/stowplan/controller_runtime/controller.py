"""Base class of controllers: a work queue of keys, filled by changes, synced one at a time."""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts
from stowplan.controller_runtime.work_queue import WorkQueue
from stowplan.objects.store import Store, WatchEvent


class RetrySync(Exception):
    """Raised by `sync` to be retried with backoff; what is wrong has been recorded."""


class Controller:
    """Base of the controllers.

    `observe` is called for every change, inside the write that made it: but for accounts of
    namespaces, which are awaited, it only adds keys to the queue. `sync` compares one key with the
    current objects, and writes.
    """

    name = ""
    path = ""
    """Resource path of the objects that keys name; "" for several kinds."""
    observed: tuple[str, ...] = ()
    """Resource paths of the objects whose changes it looks at; () for all."""

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        self.api = api
        self.index = index
        self.recorder = recorder
        self.queue: WorkQueue[Key] = WorkQueue()

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue the keys that a change concerns. before: facts of a changed pod before the
        change."""
        raise NotImplementedError

    def sync(self, key: Key) -> None:
        """Sync one key. Raises ApiError and RetrySync to be retried later."""
        raise NotImplementedError

    def work_once(self) -> bool:
        """Sync the next due key; False if there is none."""
        key = self.queue.take(self.api.now)
        if key is None:
            return False
        try:
            self.sync(key)
        except ApiError as error:
            if error.code != 404:
                self.queue.retry(key, self.api.now)
        except RetrySync:
            self.queue.retry(key, self.api.now)
        # Any exception concerns this object only: the others are synced.
        except Exception as error:  # noqa: BLE001
            self._failed(key, error)
        else:
            self.queue.forget(key)
        return True

    def object_of(self, key: Key) -> dict[str, Any] | None:
        """The object that a key names; None if it does not exist or keys name several kinds."""
        return self.api.get(self.path, *key) if self.path else None

    def _failed(self, key: Key, error: Exception) -> None:
        """Count a failure, record an event on the object, and retry later."""
        self.queue.retry(key, self.api.now)
        self.api.faults.add(self.name, "/".join(key).strip("/"), error)
        found = self.object_of(key)
        if found is not None:
            text = f"error syncing: {error!r}"
            self.recorder.record(found, self.name, "SyncError", text, type="Warning")

    @property
    def n_failing(self) -> int:
        """Number of keys whose last sync failed."""
        return self.queue.n_failing

    @staticmethod
    def decoded(value: bytes | None) -> dict[str, Any] | None:
        """A stored object's bytes as a tree; None for None."""
        tree: dict[str, Any] | None = None if value is None else msgspec.json.decode(value)
        return tree

    def next_at(self) -> float | None:
        """When `work_once` is due again; None: after the next change."""
        return self.queue.next_at()
