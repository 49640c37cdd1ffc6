"""Volcano queue controller: the queues `root` and `default`, parents, and the status of queues.

A queue is closed and opened by Commands, with all queues below it: those that were closed with it
are opened with it.

`status.allocated` is written here, so that it is there under any scheduler; in Volcano the
scheduler writes it when a session closes.

Source: volcano master of 2026-08-20, pkg/controllers/queue, pkg/scheduler/cache/cache.go
(newDefaultAndRootQueue).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import CUSTOM_RESOURCE_DEFINITIONS, PODS
from stowplan.controllers.volcano.queue_allocations import QueueAllocations
from stowplan.controllers.volcano.volcano_commands import VolcanoCommands
from stowplan.controllers.volcano.volcano_kinds import (
    SCHEDULING_VERSION,
    VOLCANO_COMMANDS,
    VOLCANO_POD_GROUPS,
    VOLCANO_QUEUES,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store, WatchEvent

ROOT, DEFAULT = "root", "default"
_MADE = {ROOT: False, DEFAULT: True}
"""Queue that always exists -> whether others may reclaim from it."""
OPEN, CLOSING, CLOSED = "Open", "Closing", "Closed"
OPEN_QUEUE, CLOSE_QUEUE = "OpenQueue", "CloseQueue"
CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"
_PHASES = ("Pending", "Running", "Unknown", "Inqueue", "Completed")


class VolcanoQueueController(Controller):
    """Keys are those of Queues of scheduling.volcano.sh."""

    name = "vc-queue-controller"
    path = VOLCANO_QUEUES

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        # PodGroup -> its phase, by queue.
        self._phases: dict[str, dict[Key, str]] = {}
        self._queue_of: dict[Key, str] = {}
        self._parents: dict[str, str] = {}
        self._allocations = QueueAllocations()
        self._commands = VolcanoCommands(api, SCHEDULING_VERSION, "Queue", namespaced=False)

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed Queue, that of a changed PodGroup, pod or Command, and those that always
        exist."""
        if change.path == PODS:
            key = split_key(change)
            group = self._allocations.pod_changed(key, self.index.pods.get(key), change.value)
            if group in self._queue_of:
                self._add_with_ancestors(self._queue_of[group])
        elif change.path == VOLCANO_QUEUES:
            name = split_key(change)[1]
            self._add_with_ancestors(name)
            if change.type == "DELETED":
                self._parents.pop(name, None)
            else:
                spec = (self.decoded(change.value) or {}).get("spec") or {}
                self._parents[name] = spec.get("parent") or ROOT
            self._add_with_ancestors(name)
        elif change.path == VOLCANO_POD_GROUPS:
            self._group_changed(split_key(change), self.decoded(change.value) or {}, change.type)
        elif change.path == VOLCANO_COMMANDS and change.type == "ADDED":
            target = self._commands.observe(change, self.decoded(change.value))
            if target is not None:
                self.queue.add(target)
        elif (
            change.path == CUSTOM_RESOURCE_DEFINITIONS
            and change.name == "queues.scheduling.volcano.sh"
        ):
            for name in _MADE:
                self.queue.add(("", name))

    def _group_changed(self, key: Key, group: Tree, type_: str) -> None:
        name = (group.get("spec") or {}).get("queue") or DEFAULT
        before = self._queue_of.pop(key, name)
        self._phases.get(before, {}).pop(key, None)
        if type_ != "DELETED":
            phase = (group.get("status") or {}).get("phase")
            self._phases.setdefault(name, {})[key] = phase or "Pending"
            self._queue_of[key] = name
        for one in {before, name}:
            self._add_with_ancestors(one)

    def _add_with_ancestors(self, name: str) -> None:
        """Queue a Queue and those above it."""
        seen: set[str] = set()
        while name and name not in seen:
            seen.add(name)
            self.queue.add(("", name))
            name = "" if name == ROOT else self._parents.get(name, ROOT)

    def sync(self, key: Key) -> None:
        """Create a queue that always exists; write parent, state and counts of any other."""
        commands = self._commands.pending(key)
        queue = self.api.get(VOLCANO_QUEUES, *key)
        name = key[1]
        if queue is None:
            self._commands.forget(key)
            if name in _MADE and self.api.path_of(SCHEDULING_VERSION, "Queue") is not None:
                self._create(name)
            return
        spec = queue.setdefault("spec", {})
        if name != ROOT and not spec.get("parent"):
            spec["parent"] = ROOT
            queue = self.api.update(VOLCANO_QUEUES, queue)
        status = dict(queue.get("status") or {})
        before = status.get("state") or OPEN
        queue, state = self._next_state(queue, before, commands[0] if commands else "")
        allocated = self._allocations.total(self._groups_below(name))
        after: Tree = {**status, "state": state, **self._counts(name), "allocated": allocated}
        if after != status:
            queue["status"] = after
            self.api.update_status(VOLCANO_QUEUES, queue)
        if state != before:
            self._state_changed(queue, before)
        if commands:
            self._commands.done(key)
            self.queue.add(key)

    def _next_state(self, queue: Tree, state: str, action: str) -> tuple[Tree, str]:
        """The state that follows from an action, the parent and what is in a queue; "" for no
        action. Returns the queue as stored, which a note may have changed."""
        name = queue["metadata"]["name"]
        notes = queue["metadata"].get("annotations") or {}
        above = self._state_above(queue)
        if action == OPEN_QUEUE and state != OPEN:
            if above != OPEN:
                text = (
                    f"OpenQueue queue failed for Failed to open queue {name} because its parent "
                    f"queue {queue['spec']['parent']} is closing or closed. Open the parent queue "
                    "first."
                )
                self.recorder.record(queue, self.name, OPEN_QUEUE, text, type="Warning")
                return queue, state
            return self._noted(queue, "false"), OPEN
        if name != ROOT and state == OPEN and (action == CLOSE_QUEUE or above != OPEN):
            queue = queue if above == OPEN else self._noted(queue, "true")
            return queue, CLOSING if self._phases.get(name) else CLOSED
        if state != OPEN and above == OPEN and notes.get(CLOSED_BY_PARENT) == "true":
            return self._noted(queue, "false"), OPEN
        if state == CLOSING and not self._phases.get(name):
            state = CLOSED
        return queue, state

    def _state_above(self, queue: Tree) -> str:
        """The state of the parent; Open below the root, and where there is none."""
        parent = queue["spec"].get("parent") or ROOT
        found = None if parent == ROOT else self.api.get(VOLCANO_QUEUES, "", parent)
        return str(((found or {}).get("status") or {}).get("state") or OPEN)

    def _noted(self, queue: Tree, value: str) -> Tree:
        """A queue with the note whether it was closed with its parent."""
        notes = queue["metadata"].setdefault("annotations", {})
        if notes.get(CLOSED_BY_PARENT) == value:
            return queue
        notes[CLOSED_BY_PARENT] = value
        return self.api.update(VOLCANO_QUEUES, queue)

    def _state_changed(self, queue: Tree, before: str) -> None:
        name = queue["metadata"]["name"]
        if before == OPEN:
            self.recorder.record(queue, self.name, CLOSE_QUEUE, "Close queue succeed")
        for child, parent in self._parents.items():
            if parent == name and child != name:
                self.queue.add(("", child))

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

    def _groups_below(self, name: str) -> Iterator[Key]:
        """PodGroups of a queue and of those below it."""
        for queue, groups in self._phases.items():
            if groups and (queue == name or name in self._ancestors(queue)):
                yield from groups

    def _ancestors(self, name: str) -> set[str]:
        found: set[str] = set()
        while name != ROOT and name not in found:
            found.add(name)
            name = self._parents.get(name, ROOT)
        return found | {ROOT}
