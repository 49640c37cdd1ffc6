"""Volcano queue controller: the queues `root` and `default`, parents, and the status of queues.

Source: volcano master of 2026-08-20, pkg/controllers/queue, pkg/scheduler/cache/cache.go
(newDefaultAndRootQueue).
"""

from __future__ import annotations

from collections import Counter

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import CUSTOM_RESOURCE_DEFINITIONS
from stowplan.controllers.volcano.volcano_kinds import (
    SCHEDULING_VERSION,
    VOLCANO_POD_GROUPS,
    VOLCANO_QUEUES,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store, WatchEvent

ROOT, DEFAULT = "root", "default"
_MADE = {ROOT: False, DEFAULT: True}
"""Queue that always exists -> whether others may reclaim from it."""
_PHASES = ("Pending", "Running", "Unknown", "Inqueue", "Completed")


class VolcanoQueueController(Controller):
    """Keys are those of Queues of scheduling.volcano.sh."""

    name = "vc-queue-controller"
    path = VOLCANO_QUEUES

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        # PodGroup -> its phase, by queue.
        self._phases: dict[str, dict[Key, str]] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed Queue, that of a changed PodGroup, and those that always exist."""
        if change.path == VOLCANO_QUEUES:
            self.queue.add(split_key(change))
        elif change.path == VOLCANO_POD_GROUPS:
            group = self.decoded(change.value) or {}
            name = (group.get("spec") or {}).get("queue") or DEFAULT
            phases = self._phases.setdefault(name, {})
            if change.type == "DELETED":
                phases.pop(split_key(change), None)
            else:
                phase = (group.get("status") or {}).get("phase")
                phases[split_key(change)] = phase or "Pending"
            self.queue.add(("", name))
        elif (
            change.path == CUSTOM_RESOURCE_DEFINITIONS
            and change.name == "queues.scheduling.volcano.sh"
        ):
            for name in _MADE:
                self.queue.add(("", name))

    def sync(self, key: Key) -> None:
        """Create a queue that always exists; write parent and status of any other."""
        queue = self.api.get(VOLCANO_QUEUES, *key)
        name = key[1]
        if queue is None:
            if name in _MADE and self.api.path_of(SCHEDULING_VERSION, "Queue") is not None:
                self._create(name)
            return
        spec = queue.setdefault("spec", {})
        if name != ROOT and not spec.get("parent"):
            spec["parent"] = ROOT
            queue = self.api.update(VOLCANO_QUEUES, queue)
        status = dict(queue.get("status") or {})
        after: Tree = {**status, "state": status.get("state") or "Open", **self._counts(name)}
        if after != status:
            queue["status"] = after
            self.api.update_status(VOLCANO_QUEUES, queue)

    def _create(self, name: str) -> None:
        self.api.create(
            VOLCANO_QUEUES,
            {
                "apiVersion": SCHEDULING_VERSION,
                "kind": "Queue",
                "metadata": {"name": name},
                "spec": {"weight": 1, "reclaimable": _MADE[name]},
            },
        )

    def _counts(self, name: str) -> Tree:
        """PodGroups of a queue by phase."""
        counts = Counter(self._phases.get(name, {}).values())
        return {phase.lower(): counts[phase] for phase in _PHASES}
