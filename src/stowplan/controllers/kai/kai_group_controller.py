"""KAI-Scheduler's podgroup controller: what the pods of a PodGroup request and have, in its status.

Differs: cards of ResourceClaims are not counted, and of a share of a card by its memory only the
request.

Source: KAI-Scheduler, pkg/podgroupcontroller/controllers (status_updater.go, metadata, resources).
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.custom.kai_pod_checks import DEVICES, FRACTION, MEMORY
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import PODS
from stowplan.controllers.kai.kai_kinds_served import (
    KAI_POD_GROUPS,
    PRIORITY_CLASSES,
    sum_of,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.kai.annotation_numbers import DEVICES_MAX, decimal, unsigned_number
from stowplan.objects.kai.kai_kinds import KAI_GROUP_ANNOTATION, KAI_PRIORITY_CLASSES
from stowplan.objects.quantity import Quantity
from stowplan.objects.store import Store, WatchEvent

PREEMPTIBLE_BELOW, DEFAULT_PRIORITY = 100, 50
CARD, CARD_MEMORY = "nvidia.com/gpu", "run.ai/gpu.memory"
_NAMED = KAI_GROUP_ANNOTATION.encode()


class KaiGroupController(Controller):
    """Keys are those of PodGroups of scheduling.run.ai."""

    name = "podgroup-controller"
    path = KAI_POD_GROUPS

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._group_of: dict[Key, Key] = {}
        self._pods: dict[Key, dict[Key, None]] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed group, and that of a changed pod."""
        key = split_key(change)
        if change.path == KAI_POD_GROUPS and change.type != "DELETED":
            self.queue.add(key)
        elif change.path == PODS and (key in self._group_of or _NAMED in change.value):
            self._pod_changed(key, change)

    def _pod_changed(self, key: Key, change: WatchEvent) -> None:
        before, now = self._group_of.pop(key, None), None
        if change.type != "DELETED":
            meta = (self.decoded(change.value) or {})["metadata"]
            name = (meta.get("annotations") or {}).get(KAI_GROUP_ANNOTATION)
            now = (key[0], name) if name else None
        if before is not None and before != now:
            self._pods[before].pop(key, None)
            if not self._pods[before]:
                del self._pods[before]
        if now is not None:
            self._group_of[key] = now
            self._pods.setdefault(now, {})[key] = None
        for group in {before, now} - {None}:
            if group is not None:
                self.queue.add(group)

    def sync(self, key: Key) -> None:
        """Write `status.resourcesStatus` of a group."""
        group = self.api.get(KAI_POD_GROUPS, *key)
        if group is None:
            return
        pods = [
            pod for one in self._pods.get(key, ()) if (pod := self.api.get(PODS, *one)) is not None
        ]
        allocated = sum_of(one for pod in pods if _is_allocated(pod) for one in _has(pod))
        requested = sum_of(one for pod in pods if _is_active(pod) for one in _asks(pod))
        found = {"allocated": allocated, "requested": requested}
        if not self._is_preemptible(group):
            found["allocatedNonPreemptible"] = allocated
        found = {name: amounts for name, amounts in found.items() if amounts}
        status = group.get("status") or {}
        if status.get("resourcesStatus", {}) != found:
            self.api.update_status(
                KAI_POD_GROUPS, {**group, "status": {**status, "resourcesStatus": found}}
            )

    def _is_preemptible(self, group: Tree) -> bool:
        spec = group.get("spec") or {}
        if spec.get("preemptibility"):
            return bool(spec["preemptibility"] == "preemptible")
        name = spec.get("priorityClassName") or ""
        found = self.api.get(PRIORITY_CLASSES, "", name) if name else None
        if found is not None:
            return int(found["value"]) < PREEMPTIBLE_BELOW
        if name in KAI_PRIORITY_CLASSES:
            return KAI_PRIORITY_CLASSES[name] < PREEMPTIBLE_BELOW
        classes = self.api.list(PRIORITY_CLASSES)
        defaults = (int(one["value"]) for one in classes if one.get("globalDefault"))
        return next(defaults, DEFAULT_PRIORITY) < PREEMPTIBLE_BELOW


def _phase(pod: Tree) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _is_active(pod: Tree) -> bool:
    return _phase(pod) in ("Pending", "Running")


def _is_allocated(pod: Tree) -> bool:
    if _phase(pod) != "Pending":
        return _phase(pod) == "Running"
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        one.get("type") == "PodScheduled" and one.get("status") == "True" for one in conditions
    )


def _containers(pod: Tree) -> Iterator[dict[str, Quantity]]:
    for container in pod["spec"]["containers"]:
        yield (container.get("resources") or {}).get("requests") or {}


def _asks(pod: Tree) -> Iterator[dict[str, Quantity]]:
    """Lists of what a pod asks for."""
    yield from _containers(pod)
    notes = pod["metadata"].get("annotations") or {}
    count = unsigned_number(notes.get(DEVICES, "1"))
    if count is None:
        return
    for asked in (_fraction(notes), _memory(notes)):
        yield from (asked for _ in range(min(count, DEVICES_MAX)))


def _has(pod: Tree) -> Iterator[dict[str, Quantity]]:
    """Lists of what a pod has."""
    yield from _containers(pod)
    notes = pod["metadata"].get("annotations") or {}
    if notes.get("received-resource-type") == "Fraction":
        yield _fraction(notes)


def _fraction(notes: Tree) -> dict[str, Quantity]:
    """The part of a card; {} where the annotation names none, as the scheduler reads it."""
    return {CARD: notes[FRACTION]} if 0 < decimal(notes.get(FRACTION)) < 1 else {}


def _memory(notes: Tree) -> dict[str, Quantity]:
    return {CARD_MEMORY: notes[MEMORY]} if unsigned_number(notes.get(MEMORY)) else {}
