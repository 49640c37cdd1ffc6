"""Recorded workload: what happened to a cluster without its scheduler's doing.

From a recording are taken the arrivals of pods, their run times and deletions, and the changes of
nodes and other objects; what the scheduler caused is left out: bindings, status patches, evictions
with the pods that controllers created in place of the victims, and its own writes of objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stowplan.framework.object_store import key_of
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.kai.kai_kinds import KaiPodGroupObject
from stowplan.objects.pod import Pod, PodStatus
from stowplan.recording.call_codec import RecordedCall
from stowplan.recording.message_codec import WriteRecord
from stowplan.recording.recording_files import Recording


class WorkloadChange(msgspec.Struct, frozen=True):
    """A change. at: nanoseconds from the start. kind: the event's class. value: the object; of a
    deleted pod its key."""

    at: int
    kind: type[Any]
    value: Any


class RecordedPod(msgspec.Struct):
    """What became of a pod, or of the last one that replaced it after evictions. Times from the
    start in nanoseconds, None for what did not happen.

    node: bound by the recorded scheduler. ended: it succeeded or failed.
    """

    key: str
    arrived: int
    node: str = ""
    bound: int | None = None
    ended: int | None = None

    @property
    def run_ns(self) -> int | None:
        """Time from the binding to the end."""
        if self.bound is None or self.ended is None:
            return None
        return max(0, self.ended - self.bound)


class RecordedWorkload(msgspec.Struct, frozen=True):
    """changes: in order. pods: by uid. length: of the recording, in nanoseconds."""

    changes: list[WorkloadChange]
    pods: dict[str, RecordedPod]
    length: int


def workload_of(recording: Recording) -> RecordedWorkload:
    """The workload of a recording; raises RecordingError."""
    reader = _WorkloadReader(recording.began)
    if recording.snapshot is not None:
        for event in recording.snapshot.events():
            reader.take(event, recording.began)
    now = recording.began
    for call in recording.calls():
        now = call.now
        reader.call(call)
    return RecordedWorkload(reader.changes, reader.pods, now - recording.began)


class _WorkloadReader:
    """Separates what the scheduler caused from all else."""

    def __init__(self, began: int) -> None:
        self.changes: list[WorkloadChange] = []
        self.pods: dict[str, RecordedPod] = {}
        self._began = began
        self._known: dict[str, Pod] = {}
        self._evicted: set[str] = set()
        # Victims of an owner, or of a name, whose replacement has not arrived.
        self._to_replace: dict[str, deque[RecordedPod]] = {}
        # By uid, also of replacements.
        self._records: dict[str, RecordedPod] = {}
        self._written: set[tuple[str, str]] = set()
        self._handlers: Mapping[type[Any], Callable[[Any, int], None]] = {
            happened.PodAdded: lambda e, at: self._put_pod(e.pod, at),
            happened.PodUpdated: lambda e, at: self._put_pod(e.pod, at),
            happened.PodDeleted: lambda e, at: self._drop_pod(e.pod, at),
            happened.ObjectUpdated: self._object_updated,
        }

    def call(self, call: RecordedCall) -> None:
        """Take a call: its events, then the effects, which later events may show."""
        for event in call.events():
            self.take(event, call.now)
        for effect in call.effects():
            self._effect(effect, call.now - self._began)

    def take(self, event: Any, now: int) -> None:
        """Take an event."""
        at = now - self._began
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event, at)
        elif isinstance(event, happened.NodeAdded | happened.NodeUpdated | happened.NodeDeleted):
            self._add(at, type(event), event.node)
        elif isinstance(event, happened.ObjectAdded | happened.ObjectDeleted):
            self._add(at, type(event), event.value)

    def _effect(self, effect: Any, at: int) -> None:
        match effect:
            case to_do.Bind(uid=uid, node=node):
                record = self._records.get(uid)
                if record is not None:
                    record.node, record.bound = node, at
            case to_do.Evict(uid=uid) if uid in self._known and uid not in self._evicted:
                self._evicted.add(uid)
                record = self._records.get(uid)
                if record is not None:
                    place = _place_of(self._known[uid])
                    self._to_replace.setdefault(place, deque()).append(record)
            case to_do.PatchGroup():
                self._written.add(("PodGroup", f"{effect.namespace}/{effect.name}"))
            case to_do.AnnotateGroup():
                written = (KaiPodGroupObject.__name__, f"{effect.namespace}/{effect.name}")
                self._written.add(written)
            case WriteRecord(record=record):
                self._written.add((record.kind, key_of(record.object())))

    def _add(self, at: int, kind: type[Any], value: Any) -> None:
        self.changes.append(WorkloadChange(at, kind, value))

    def _object_updated(self, event: happened.ObjectUpdated, at: int) -> None:
        value = event.value
        if (type(value).__name__, key_of(value)) not in self._written:
            self._add(at, type(event), value)

    def _put_pod(self, pod: Pod, at: int) -> None:
        uid = pod.uid
        before = self._known.get(uid)
        self._known[uid] = pod
        if pod.is_finished:
            self._finish(pod, at)
        elif before is None:
            self._arrive(pod, at)
        elif uid in self.pods and _changed_by_others(before, pod, self.pods[uid]):
            self._add(at, happened.PodUpdated, pod)

    def _arrive(self, pod: Pod, at: int) -> None:
        victims = self._to_replace.get(_place_of(pod))
        if victims and not pod.node_name:
            # Its controller creates it only where its predecessor is evicted.
            record = self._records[pod.uid] = victims.popleft()
            record.node, record.bound = "", None
            return
        self.pods[pod.uid] = self._records[pod.uid] = RecordedPod(pod.key, at)
        self._add(at, happened.PodAdded, pod if pod.node_name else as_created(pod))

    def _finish(self, pod: Pod, at: int) -> None:
        held = self._records.get(pod.uid)
        if held is not None and held.ended is None:
            held.ended = at
            if held.bound is None:
                # Bound by another scheduler, or before the start.
                self._add(at, happened.PodDeleted, held.key)

    def _drop_pod(self, pod: Pod, at: int) -> None:
        self._known.pop(pod.uid, None)
        held = self._records.get(pod.uid)
        if held is not None and held.ended is None and pod.uid not in self._evicted:
            self._add(at, happened.PodDeleted, held.key)


def as_created(pod: Pod) -> Pod:
    """A pod as it was created: without node, status and deletion."""
    meta = replace(pod.metadata, deletion_timestamp=None)
    return replace(pod, metadata=meta, status=PodStatus())


def _place_of(pod: Pod) -> str:
    """What a replacement shares with its predecessor: the controller, else the name."""
    owner = pod.controller
    return pod.key if owner is None else f"{pod.namespace}/{owner.kind}/{owner.name}"


def _changed_by_others(before: Pod, after: Pod, held: RecordedPod) -> bool:
    """True for a change of a pod that is not the recorded scheduler's."""
    if after.metadata.deletion_timestamp is not None:
        # Its end follows.
        return False
    if held.bound is not None:
        return False
    if after.node_name != before.node_name:
        return True
    meta = replace(after.metadata, resource_version=before.metadata.resource_version)
    return replace(after, metadata=meta, status=before.status) != before
