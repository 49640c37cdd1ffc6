"""World: a Kubernetes cluster in memory, as its API server would have it, and its kubelets.

The verbs answer with the HTTP status that the API would give. Every change gets a version and
stands in the log, from which watches read; what has been compacted away is 410 to them.

Pods that are bound start after a while, run for as long as they are said to, and end as Succeeded;
those that are deleted go after their grace. Nobody here knows a scheduler.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from stowplan.framework.object_store import key_of
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.input_error import InputError
from stowplan.messages import events as happened
from stowplan.messages.effects import PatchGroup, PatchStatus
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod, PodCondition, PodStatus
from stowplan.objects.podgroup import PodGroup
from stowplan.simulation.event_queue import EventQueue

CREATED, OK, NOT_FOUND, CONFLICT, GONE = 201, 200, 404, 409, 410
RUN_MAX = 10**10
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
DISRUPTED = PodCondition("DisruptionTarget", "True", "PreemptionByScheduler")


class Pace(msgspec.Struct, frozen=True):
    """How long things take in a cluster, in seconds.

    bind_s: from the request to the binding. start_s: from the binding to the pod's start.
    grace_s: from the deletion of a bound pod to its end.
    """

    bind_s: float = 0.01
    start_s: float = 1.0
    grace_s: float = 1.0


NO_LATENCY = Pace(0.0, 0.0, 0.0)


class SimulatedCluster:
    """The state of a cluster, by key, and all that changed it.

    run_of: how long a pod runs, in nanoseconds; None for one that never ends. on_change: called
    after every change. on_bound, on_started, on_ended: called with a pod when that happens to it;
    on_ended also says why, "" where it ran to its end. on_written: called with an object that
    somebody has changed for a pod's sake.
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
        self.on_written: Callable[[Object], None] = _nothing_written
        self.run_of: Callable[[Pod], int | None] = run_of
        self._log: list[Event] = []
        self._compacted = 0

    # The log.

    def since(self, version: int) -> list[Event]:
        """What has happened after a version, in order; raises Expired when that is forgotten."""
        if version < self._compacted:
            raise ResourceVersionExpired(version, self._compacted)
        return self._log[version - self._compacted :]

    @property
    def latest(self) -> Event:
        """What has happened last."""
        return self._log[-1]

    def compact(self, version: int) -> None:
        """Forget what happened up to a version."""
        if version > self._compacted:
            del self._log[: version - self._compacted]
            self._compacted = version

    def _changed(self, event: Event) -> None:
        self.version += 1
        self._log.append(event)
        for tell in self.on_change:
            tell()

    def _next_version(self) -> str:
        return str(self.version + 1)

    # Nodes and other objects.

    def put_node(self, node: Node) -> None:
        """A node is there, or has changed."""
        node = replace(node, metadata=replace(node.metadata, resource_version=self._next_version()))
        known = node.name in self.nodes
        self.nodes[node.name] = node
        self._changed(happened.NodeUpdated(node) if known else happened.NodeAdded(node))

    def drop_node(self, name: str) -> None:
        """A node leaves; its pods stay until `clear_node`."""
        self._changed(happened.NodeDeleted(self.nodes.pop(name)))

    def clear_node(self, name: str, why: str) -> None:
        """The pods of a node are no more, at once."""
        for pod in [pod for pod in self.pods.values() if pod.node_name == name]:
            self.drop_pod(pod.key, why)

    def put_object(self, value: Object) -> Object:
        """Something else that rules read is there, or has changed; returns it as it is stored."""
        key = (type(value), key_of(value))
        known = key in self.objects
        meta = replace(value.metadata, resource_version=self._next_version())
        value = replace(value, metadata=meta)
        self.objects[key] = value
        self._changed(happened.ObjectUpdated(value) if known else happened.ObjectAdded(value))
        return value

    def drop_object(self, kind: type[Object], key: str) -> None:
        """Something else that rules read is no more."""
        self._changed(happened.ObjectDeleted(self.objects.pop((kind, key))))

    def write(self, value: Object) -> tuple[int, str]:
        """Change an object that still has the version of `value`: the status, and its version."""
        stored = self.objects.get((type(value), key_of(value)))
        if stored is None:
            return NOT_FOUND, ""
        if stored.metadata.resource_version != value.metadata.resource_version:
            return CONFLICT, ""
        stored = self.put_object(value)
        self.on_written(stored)
        return OK, stored.metadata.resource_version

    # Pods.

    def put_pod(self, pod: Pod) -> Pod:
        """A pod is there, or has changed; returns it as it is stored."""
        known = pod.key in self.pods
        uid, version = pod.metadata.uid or pod.key, self._next_version()
        pod = replace(pod, metadata=replace(pod.metadata, uid=uid, resource_version=version))
        self.pods[pod.key] = pod
        self._changed(happened.PodUpdated(pod) if known else happened.PodAdded(pod))
        return pod

    def drop_pod(self, key: str, why: str) -> None:
        """A pod is no more."""
        pod = self.pods.pop(key)
        self._changed(happened.PodDeleted(pod))
        self.on_ended(pod, why)

    def delete_pod(self, key: str, why: str) -> None:
        """Delete gracefully: a bound pod takes its time, another is gone at once."""
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

    # What a scheduler asks for.

    def bind(self, key: str, uid: str, node: str) -> int:
        """Bind a pod, on condition that it still has this uid."""
        pod = self.pods.get(key)
        if pod is None:
            return NOT_FOUND
        if pod.uid != uid or pod.node_name or pod.metadata.deletion_timestamp is not None:
            return CONFLICT
        # The API server clears the nomination of a pod that it binds.
        status = pod.status
        if status.nominated_node_name:
            status = replace(status, nominated_node_name="")
        bound = self.put_pod(replace(pod, spec=replace(pod.spec, node_name=node), status=status))
        self.on_bound(bound)
        self.event_queue.after(round(self.pace.start_s * SECOND), self._start, key, uid)
        return CREATED

    def patch_status(self, asked: PatchStatus) -> int:
        """Set the condition and the nomination of a pod."""
        pod = self.pods.get(f"{asked.namespace}/{asked.name}")
        if pod is None or pod.uid != asked.uid:
            return NOT_FOUND
        status = pod.status
        if asked.reason:
            status = _with_unschedulable(status, asked.reason, asked.message)
        if asked.nominated_node is not None and not pod.node_name:
            status = replace(status, nominated_node_name=asked.nominated_node)
        if status != pod.status:
            self.put_pod(replace(pod, status=status))
        return OK

    def set_unschedulable(self, key: str, reason: str, message: str) -> None:
        """Set the condition of a pod, of which nobody is told."""
        pod = self.pods[key]
        self.pods[key] = replace(pod, status=_with_unschedulable(pod.status, reason, message))

    def patch_group(self, asked: PatchGroup) -> int:
        """Set the status of a pod group."""
        group = self.objects.get((PodGroup, f"{asked.namespace}/{asked.name}"))
        if not isinstance(group, PodGroup) or group.metadata.uid != asked.uid:
            return NOT_FOUND
        if group.status != asked.status:
            self.put_object(replace(group, status=asked.status))
        return OK

    def evict(self, key: str, uid: str) -> int:
        """Announce to a victim that it must go, and delete it."""
        pod = self.pods.get(key)
        if pod is None or pod.uid != uid:
            return NOT_FOUND
        if DISRUPTED not in pod.status.conditions:
            conditions = (*pod.status.conditions, DISRUPTED)
            self.put_pod(replace(pod, status=replace(pod.status, conditions=conditions)))
        self.delete_pod(key, "preempted")
        return OK

    # Kubelets.

    def _start(self, key: str, uid: str) -> None:
        """A bound pod begins to run, unless something has come between."""
        pod = self.pods.get(key)
        if pod is None or pod.uid != uid or pod.metadata.deletion_timestamp is not None:
            return
        self.on_started(pod)
        runs = self.run_of(pod)
        if runs is not None:
            self.event_queue.after(runs, self._finish, key, uid)

    def run(self, pod: Pod) -> None:
        """Let a pod run that was bound before the beginning."""
        self._start(pod.key, pod.uid)

    def _finish(self, key: str, uid: str) -> None:
        """A pod has done its work; that it is there still, as Succeeded, matters to nobody."""
        if self._is_there(key, uid):
            pod = self.pods[key]
            pod = self.put_pod(replace(pod, status=replace(pod.status, phase="Succeeded")))
            del self.pods[key]
            self.on_ended(pod, "")


class ResourceVersionExpired(Exception):
    """The log does not reach back to this version: HTTP status 410."""

    def __init__(self, version: int, compacted: int) -> None:
        super().__init__(f"version {version} was asked for, the log begins after {compacted}")


def run_of(pod: Pod) -> int | None:
    """How long a pod says that it runs, in nanoseconds; None for ever. Raises InputError."""
    said = pod.metadata.annotations.get(RUN_ANNOTATION)
    if said is None:
        return None
    try:
        seconds = float(said)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= RUN_MAX:
        place = f"metadata.annotations[{RUN_ANNOTATION}]"
        raise InputError(f"pod {pod.key}", place, repr(said), f"seconds from 0 to {RUN_MAX}")
    return round(seconds * SECOND)


def _with_unschedulable(status: PodStatus, reason: str, message: str) -> PodStatus:
    said = PodCondition("PodScheduled", "False", reason, message)
    others = tuple(c for c in status.conditions if c.type != "PodScheduled")
    return replace(status, conditions=(*others, said))


def _nothing(pod: Pod) -> None:
    """What happens to a pod concerns nobody."""


def _nothing_why(pod: Pod, why: str) -> None:
    """Nor why it ended."""


def _nothing_written(value: Object) -> None:
    """Nor what is written."""
