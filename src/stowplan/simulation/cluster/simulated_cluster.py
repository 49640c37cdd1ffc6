"""Simulated cluster: API objects in memory with a change log, and simulated kubelets.

Verbs return the HTTP status of the API. Every change gets a resource version and is appended to the
log, from which watches read; a read before the compacted part gets 410.

Bound pods start after a delay, run for their run time and end as Succeeded; deleted pods end after
their grace period.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from stowplan.framework.object_store import key_of
from stowplan.inputs.input_error import InputError
from stowplan.kubelet.pod_admit_handler import unexpected_admission_error
from stowplan.messages import events as happened
from stowplan.messages.effects import AnnotateGroup, PatchGroup, PatchQueue, PatchStatus
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_API_VERSION,
    KaiPodGroupObject,
    KaiSchedulingCondition,
)
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod, PodCondition, PodStatus
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.objects.scheduling_group import (
    SCHEDULING_API_VERSION,
    SchedulingGroup,
    with_conditions,
)
from stowplan.objects.timing.run_limits import RUN_ANNOTATION, RUN_EXPECTED, annotated_run_s
from stowplan.plugins.gpu_share.card_admission import CardAdmission
from stowplan.simulation.cluster.cluster_api import (
    CONFLICT,
    CREATED,
    NO_LATENCY,
    NOT_FOUND,
    OK,
    Pace,
)
from stowplan.simulation.event_queue import EventQueue

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
DISRUPTED = PodCondition("DisruptionTarget", "True", "PreemptionByScheduler")


class SimulatedCluster:
    """API objects by key, and the log of changes.

    run_of: run time of a pod in nanoseconds; None: it never ends. on_change: called after every
    change. on_bound, on_started, on_ended: called with the pod; on_ended also with the reason, ""
    when it succeeded. on_rejected: with a pod that its node did not admit, and why. on_written:
    called with an object that a scheduler has written. devices: GPU cards of the nodes, which their
    kubelets give to pods; None: no pod is rejected.
    """

    def __init__(self, event_queue: EventQueue, pace: Pace | None = None) -> None:
        self.event_queue = event_queue
        self.pace = pace or NO_LATENCY
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.objects: dict[tuple[type, str], Object] = {}
        self.version = 0
        self.on_change: list[Callable[[], None]] = []
        self.on_bound: Callable[[Pod], None] = _nothing
        self.on_started: Callable[[Pod], None] = _nothing
        self.on_ended: Callable[[Pod, str], None] = _nothing_why
        self.on_rejected: Callable[[Pod, str], None] = _nothing_why
        self.on_written: Callable[[Object], None] = _nothing_written
        self.run_of: Callable[[Pod], int | None] = run_of
        self.devices: CardAdmission | None = None
        self._log: list[Event] = []
        self._compacted = 0

    # The log.

    def since(self, version: int) -> list[Event]:
        """Events after a version, in order; raises ResourceVersionExpired."""
        if version < self._compacted:
            raise ResourceVersionExpired(version, self._compacted)
        return self._log[version - self._compacted :]

    @property
    def latest(self) -> Event:
        """The last event."""
        return self._log[-1]

    def compact(self, version: int) -> None:
        """Drop events up to a version from the log."""
        if version > self._compacted:
            del self._log[: version - self._compacted]
            self._compacted = version

    def _changed(self, event: Event) -> None:
        self.version += 1
        self._log.append(event)
        for callback in self.on_change:
            callback()

    def _next_version(self) -> str:
        return str(self.version + 1)

    # Nodes and other objects.

    def put_node(self, node: Node) -> None:
        """Create or replace a node."""
        node = replace(node, metadata=replace(node.metadata, resource_version=self._next_version()))
        known = node.name in self.nodes
        self.nodes[node.name] = node
        self._changed(happened.NodeUpdated(node) if known else happened.NodeAdded(node))

    def drop_node(self, name: str) -> None:
        """Delete a node; its pods stay until `clear_node`."""
        self._changed(happened.NodeDeleted(self.nodes.pop(name)))

    def clear_node(self, name: str, why: str) -> None:
        """Delete the pods of a node at once."""
        for pod in [pod for pod in self.pods.values() if pod.node_name == name]:
            self.drop_pod(pod.key, why)

    def put_object(self, value: Object) -> Object:
        """Create or replace an object of another kind; returns it as stored."""
        key = (type(value), key_of(value))
        known = key in self.objects
        meta = replace(value.metadata, resource_version=self._next_version())
        value = replace(value, metadata=meta)
        self.objects[key] = value
        self._changed(happened.ObjectUpdated(value) if known else happened.ObjectAdded(value))
        return value

    def drop_object(self, kind: type[Object], key: str) -> None:
        """Delete an object of another kind."""
        self._changed(happened.ObjectDeleted(self.objects.pop((kind, key))))

    def write(self, value: Object, patch: Mapping[str, Any]) -> tuple[int, str]:
        """Update an object with optimistic concurrency, or create or delete it; returns (status,
        new version). See `effects.Write`."""
        if isinstance(value, Pod):
            # Of a pod's status only what schedulers read is kept.
            return (OK, "") if value.key in self.pods else (NOT_FOUND, "")
        place, version = (type(value), key_of(value)), value.metadata.resource_version
        stored = self.objects.get(place)
        if stored is None:
            if value.metadata.uid or version or not patch:
                return NOT_FOUND, ""
            made = replace(value.metadata, uid=f"{place[0].__name__}/{place[1]}/{self.version}")
            value = replace(value, metadata=made)
        elif version and stored.metadata.resource_version != version:
            return CONFLICT, ""
        elif not patch:
            self.drop_object(*place)
            return OK, ""
        elif not value.metadata.uid and not version:
            return CONFLICT, ""
        elif not value.metadata.uid:
            made = replace(value.metadata, uid=stored.metadata.uid)
            value = replace(value, metadata=made)
        stored = self.put_object(value)
        self.on_written(stored)
        return OK, stored.metadata.resource_version

    # Pods.

    def put_pod(self, pod: Pod) -> Pod:
        """Create or replace a pod; returns it as stored."""
        known = pod.key in self.pods
        uid, version = pod.metadata.uid or pod.key, self._next_version()
        pod = replace(pod, metadata=replace(pod.metadata, uid=uid, resource_version=version))
        self.pods[pod.key] = pod
        self._changed(happened.PodUpdated(pod) if known else happened.PodAdded(pod))
        return pod

    def drop_pod(self, key: str, why: str) -> None:
        """Delete a pod at once."""
        pod = self.pods.pop(key)
        self._release_devices(pod)
        self._changed(happened.PodDeleted(pod))
        self.on_ended(pod, why)

    def delete_pod(self, key: str, why: str) -> None:
        """Delete gracefully: a bound pod after its grace period, another at once."""
        pod = self.pods[key]
        if not pod.node_name or pod.is_finished:
            self.drop_pod(key, why)
        elif pod.metadata.deletion_timestamp is None:
            meta = replace(pod.metadata, deletion_timestamp=self._moment())
            self.put_pod(replace(pod, metadata=meta))
            self.event_queue.after(
                round(self.pace.grace_s * SECOND), self._end_grace_period, key, pod.uid, why
            )

    def _end_grace_period(self, key: str, uid: str, why: str) -> None:
        if self._is_there(key, uid):
            self.drop_pod(key, why)

    def _is_there(self, key: str, uid: str) -> bool:
        pod = self.pods.get(key)
        return pod is not None and pod.uid == uid

    def _moment(self) -> datetime.datetime:
        return EPOCH + datetime.timedelta(microseconds=self.event_queue.now // 1000)

    # Requests of schedulers.

    def bind(
        self, key: str, uid: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> int:
        """Bind a pod that has this uid, and add annotations to it."""
        pod = self.pods.get(key)
        if pod is None:
            return NOT_FOUND
        if pod.uid != uid or pod.node_name or pod.metadata.deletion_timestamp is not None:
            return CONFLICT
        # The API server clears the nomination of a pod that it binds.
        status = pod.status
        if status.nominated_node_name:
            status = replace(status, nominated_node_name="")
        meta = pod.metadata
        if annotations:
            meta = replace(meta, annotations={**meta.annotations, **annotations})
        spec = replace(pod.spec, node_name=node)
        bound = self.put_pod(replace(pod, metadata=meta, spec=spec, status=status))
        self.on_bound(bound)
        if self.devices is not None and node in self.nodes and self._is_rejected(bound):
            return CREATED
        self.event_queue.after(round(self.pace.start_s * SECOND), self._start, key, uid)
        return CREATED

    def patch_status(self, patch: PatchStatus) -> int:
        """Set the condition and the nomination of a pod."""
        pod = self.pods.get(f"{patch.namespace}/{patch.name}")
        if pod is None or pod.uid != patch.uid:
            return NOT_FOUND
        status = pod.status
        if patch.reason:
            status = _with_unschedulable(status, patch.reason, patch.message)
        if patch.nominated_node is not None and not pod.node_name:
            status = replace(status, nominated_node_name=patch.nominated_node)
        if status != pod.status:
            self.put_pod(replace(pod, status=status))
        return OK

    def set_unschedulable(self, key: str, reason: str, message: str) -> None:
        """Set the PodScheduled condition of a pod without an event."""
        pod = self.pods[key]
        self.pods[key] = replace(pod, status=_with_unschedulable(pod.status, reason, message))

    def patch_group(self, patch: PatchGroup) -> int:
        """Set the status of a pod group."""
        key = f"{patch.namespace}/{patch.name}"
        if patch.api_version == SCHEDULING_API_VERSION:
            return self._patch_scheduling_group(key, patch)
        if patch.api_version == KAI_GROUP_API_VERSION:
            return self._patch_kai_group(key, patch)
        group = self.objects.get((PodGroup, key))
        if not isinstance(group, PodGroup) or group.metadata.uid != patch.uid:
            return NOT_FOUND
        if group.status != patch.status:
            self.put_object(replace(group, status=patch.status))
        return OK

    def annotate_group(self, patch: AnnotateGroup) -> int:
        """Set annotations of a pod group of KAI-Scheduler."""
        group = self.objects.get((KaiPodGroupObject, f"{patch.namespace}/{patch.name}"))
        if group is None or group.metadata.uid != patch.uid:
            return NOT_FOUND
        notes = {**group.metadata.annotations, **patch.annotations}
        kept = {key: text for key, text in notes.items() if text is not None}
        if kept != group.metadata.annotations:
            self.put_object(replace(group, metadata=replace(group.metadata, annotations=kept)))
        return OK

    def patch_queue(self, patch: PatchQueue) -> int:
        """Set what the pods of a queue have."""
        queue = self.objects.get((Queue, patch.name))
        if not isinstance(queue, Queue) or queue.metadata.uid != patch.uid:
            return NOT_FOUND
        given = {name: text for name, text in patch.allocated.items() if text is not None}
        if queue.status.allocated != given:
            self.put_object(replace(queue, status=replace(queue.status, allocated=given)))
        return OK

    def _patch_kai_group(self, key: str, patch: PatchGroup) -> int:
        group = self.objects.get((KaiPodGroupObject, key))
        if not isinstance(group, KaiPodGroupObject) or group.metadata.uid != patch.uid:
            return NOT_FOUND
        conditions = tuple(
            KaiSchedulingCondition(one.type, one.status, one.message, one.transition_id)
            for one in patch.status.conditions
        )
        if group.status.scheduling_conditions != conditions:
            status = replace(group.status, scheduling_conditions=conditions)
            self.put_object(replace(group, status=status))
        return OK

    def _patch_scheduling_group(self, key: str, patch: PatchGroup) -> int:
        group = self.objects.get((SchedulingGroup, key))
        if not isinstance(group, SchedulingGroup) or group.uid != patch.uid:
            return NOT_FOUND
        changed = with_conditions(group, patch.status.conditions, patch.observed_generation)
        if changed != group:
            self.put_object(changed)
        return OK

    def evict(self, key: str, uid: str) -> int:
        """Set the DisruptionTarget condition of a victim, and delete it gracefully."""
        pod = self.pods.get(key)
        if pod is None or pod.uid != uid:
            return NOT_FOUND
        if DISRUPTED not in pod.status.conditions:
            conditions = (*pod.status.conditions, DISRUPTED)
            self.put_pod(replace(pod, status=replace(pod.status, conditions=conditions)))
        self.delete_pod(key, "preempted")
        return OK

    # Kubelets.

    def _is_rejected(self, pod: Pod) -> bool:
        """Admit a bound pod; True where its node rejects it, which ends it as Failed."""
        assert self.devices is not None
        why = self.devices.refusal(pod, self.nodes[pod.node_name])
        if not why:
            self.devices.admit(pod)
            return False
        pod = self.put_pod(replace(pod, status=replace(pod.status, phase="Failed")))
        del self.pods[pod.key]
        found = unexpected_admission_error(why)
        self.on_rejected(pod, f"{found.reason}: {found.message}")
        return True

    def _release_devices(self, pod: Pod) -> None:
        if self.devices is not None and pod.node_name:
            self.devices.release(pod.key, pod.node_name)

    def _start(self, key: str, uid: str) -> None:
        """Start a bound pod, unless it is deleted."""
        pod = self.pods.get(key)
        if pod is None or pod.uid != uid or pod.metadata.deletion_timestamp is not None:
            return
        self.on_started(pod)
        runs = self.run_of(pod)
        if runs is not None:
            self.event_queue.after(runs, self._finish, key, uid)

    def run(self, pod: Pod) -> None:
        """Start a pod that was bound before the start."""
        if self.devices is not None:
            self.devices.admit(pod)
        self._start(pod.key, pod.uid)

    def _finish(self, key: str, uid: str) -> None:
        """End a pod as Succeeded; it is removed at once, since nothing reads finished pods."""
        if self._is_there(key, uid):
            pod = self.pods[key]
            pod = self.put_pod(replace(pod, status=replace(pod.status, phase="Succeeded")))
            del self.pods[key]
            self._release_devices(pod)
            self.on_ended(pod, "")


class ResourceVersionExpired(Exception):
    """The log begins after the requested version: HTTP status 410."""

    def __init__(self, version: int, compacted: int) -> None:
        super().__init__(f"too old resource version: {version} ({compacted})")


def run_of(pod: Pod) -> int | None:
    """Run time by the pod's annotation, in nanoseconds; None: no end. Raises InputError."""
    try:
        seconds = annotated_run_s(pod)
    except ValueError as problem:
        place = f"metadata.annotations[{RUN_ANNOTATION}]"
        raise InputError(f"pod {pod.key}", place, str(problem), RUN_EXPECTED) from None
    return None if seconds is None or seconds == math.inf else round(seconds * SECOND)


def _with_unschedulable(status: PodStatus, reason: str, message: str) -> PodStatus:
    condition = PodCondition("PodScheduled", "False", reason, message)
    others = tuple(c for c in status.conditions if c.type != "PodScheduled")
    return replace(status, conditions=(*others, condition))


def _nothing(pod: Pod) -> None:
    """Default callback: does nothing."""


def _nothing_why(pod: Pod, why: str) -> None:
    """Default of `on_ended` and `on_rejected`: does nothing."""


def _nothing_written(value: Object) -> None:
    """Default of `on_written`: does nothing."""
