"""KAI-Scheduler's queue controller: what the groups of a Queue and of those below it have.

Source: KAI-Scheduler, pkg/queuecontroller/controllers.
"""

from __future__ import annotations

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controllers.kai.kai_kinds_served import KAI_POD_GROUPS, KAI_QUEUES, sum_of
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store, WatchEvent

_AMOUNTS = ("allocated", "allocatedNonPreemptible", "requested")


class KaiQueueController(Controller):
    """Keys are those of Queues of scheduling.run.ai."""

    name = "queue-controller"
    path = KAI_QUEUES

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._parents: dict[str, str] = {}
        # Group -> (its queue, status of its resources).
        self._groups: dict[Key, tuple[str, Tree]] = {}
        self._of_queue: dict[str, dict[Key, None]] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed queue and the one above it, and that of a changed group."""
        key = split_key(change)
        if change.path == KAI_QUEUES:
            self._queue_changed(key[1], change)
        elif change.path == KAI_POD_GROUPS:
            self._group_changed(key, change)

    def _queue_changed(self, name: str, change: WatchEvent) -> None:
        above = self._parents.pop(name, "")
        self._add(above)
        if change.type != "DELETED":
            spec = (self.decoded(change.value) or {}).get("spec") or {}
            self._parents[name] = spec.get("parentQueue") or ""
            self._add(self._parents[name])
            self._add(name)

    def _group_changed(self, key: Key, change: WatchEvent) -> None:
        before = self._groups.pop(key, None)
        if before is not None:
            self._of_queue[before[0]].pop(key, None)
        now = None
        if change.type != "DELETED":
            group = self.decoded(change.value) or {}
            status = (group.get("status") or {}).get("resourcesStatus") or {}
            now = (group.get("spec") or {}).get("queue") or "", status
            self._groups[key] = now
            self._of_queue.setdefault(now[0], {})[key] = None
        if now != before:
            for one in (before, now):
                self._add(one[0] if one is not None else "")

    def _add(self, name: str) -> None:
        if name:
            self.queue.add(("", name))

    def sync(self, key: Key) -> None:
        """Write the status of a queue."""
        queue = self.api.get(KAI_QUEUES, *key)
        if queue is None:
            return
        name = key[1]
        children = sorted(one for one, above in self._parents.items() if above == name)
        below = [
            (found or {}).get("status") or {}
            for found in (self.api.get(KAI_QUEUES, "", one) for one in children)
        ]
        own = [self._groups[one][1] for one in self._of_queue.get(name, ())]
        status = {
            field: sum_of(one.get(field) or {} for one in (*below, *own)) for field in _AMOUNTS
        }
        before = queue.get("status") or {}
        others = {field: one for field, one in before.items() if field not in _WRITTEN}
        found = others | {field: one for field, one in status.items() if one}
        if children:
            found["childQueues"] = children
        if found != before:
            self.api.update_status(KAI_QUEUES, {**queue, "status": found})


_WRITTEN = (*_AMOUNTS, "childQueues")
