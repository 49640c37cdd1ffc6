"""Kueue's controllers over a store of a live cluster, a few objects at a time."""

from __future__ import annotations

import logging

from stowplan.apis.machinery.errors import ApiError
from stowplan.assembly.controller_manager import ManagedController
from stowplan.assembly.kueue.kueue_parts import kueue_controllers
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import ObjectIndex
from stowplan.driver.live.kueue.live_store import LiveStore
from stowplan.driver.live.kueue.object_replica import ReplicatedChange
from stowplan.driver.logs import log_keys
from stowplan.objects.timing.due_times import exponential_backoff

log = logging.getLogger("stowplan.scheduler")

STEP_ITEMS_MAX = 64
"""Objects per step; then changes of others are taken over."""
BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS = 1.0, 60.0


class LiveControllers:
    """Runs them. `changed` and `step` are called in the same thread."""

    def __init__(self, options: KueueOptions) -> None:
        self.index = ObjectIndex()
        self.parts: list[ManagedController] = []
        self._options = options
        self._store: LiveStore | None = None
        self._backoffs: dict[str, tuple[float, int]] = {}

    def attach(self, store: LiveStore) -> None:
        """Set the store; called before any other method."""
        self._store = store
        recorder = EventRecorder(store)
        self.parts += kueue_controllers(store, self.index, recorder, self._options)

    @property
    def store(self) -> LiveStore:
        """The store."""
        assert self._store is not None, "the controllers have no store yet"
        return self._store

    def changed(self, change: ReplicatedChange) -> None:
        """Note what a change makes due. It is called inside an own write, too."""
        before = self.index.observe(change)
        for part in self.parts:
            if not part.observed or change.path in part.observed:
                part.observe(change, before)

    def step(self, now: float) -> float | None:
        """Process objects that are due; returns when to call again (None: after a change)."""
        self.store.now = now
        n_left = STEP_ITEMS_MAX
        is_working = True
        while is_working and n_left > 0 and not self.store.is_unsure:
            is_working = False
            for part in self.parts:
                worked = self._work(part)
                is_working |= worked
                n_left -= worked
        for component, about, error in self.store.faults.take():
            keys = {"controller": component, "object": about, "err": repr(error)}
            log_keys(log, logging.ERROR, "Controller failed; retrying", **keys)
        moments = (
            max(at, self._backoffs.get(part.name, (0.0, 0))[0])
            for part in self.parts
            if (at := part.next_at()) is not None
        )
        return min(moments, default=None)

    def _work(self, part: ManagedController) -> bool:
        """Let a controller process one object; False if there is none, or it waits after a
        failure."""
        until, n_before = self._backoffs.get(part.name, (0.0, 0))
        if until > self.store.now:
            return False
        try:
            worked = part.work_once()
        except ApiError:
            # The store has logged the write that failed. The admission decides again on what is
            # stored by then; the others go on.
            wait = exponential_backoff(n_before, BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS)
            self._backoffs[part.name] = (self.store.now + wait, n_before + 1)
            return False
        self._backoffs.pop(part.name, None)
        return worked
