"""The API server of pod group scripts: objects in memory; writes come back as events when the
script says so."""

from __future__ import annotations

import datetime
from typing import Any

from msgspec.structs import replace

from stowplan.framework.object_store import key_of
from stowplan.messages import events as happened
from stowplan.messages.effects import Bind, Evict, PatchGroup, PatchStatus, Write
from stowplan.messages.events import Event
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod, PodCondition
from stowplan.objects.scheduling_group import SchedulingGroup, with_conditions

EPOCH = datetime.datetime(2026, 2, 1, tzinfo=datetime.UTC)
FORBIDDEN, NOT_FOUND, CONFLICT = 403, 404, 409


class ScriptedApi:
    """Objects by key. refused: keys of pods whose next binding is refused. arrivals: key of a pod
    -> its number. nominated: key of a pod -> nominatedNodeName that was written."""

    def __init__(self, *, graceful: bool) -> None:
        """graceful: evicted pods stay, terminating."""
        self._graceful = graceful
        self.pods: dict[str, Pod] = {}
        self.groups: dict[str, SchedulingGroup] = {}
        self.objects: dict[tuple[type[Any], str], Object] = {}
        self.refused: set[str] = set()
        self.arrivals: dict[str, int] = {}
        self.nominated: dict[str, str] = {}
        self._n_arrived = 0
        self._version = 0

    def put_pod(self, pod: Pod) -> Event:
        """A pod appears, or changes."""
        is_known = pod.key in self.pods
        if not is_known:
            self.arrivals[pod.key] = self._n_arrived
            self._n_arrived += 1
        self.pods[pod.key] = pod = self._versioned(pod, pod.metadata.uid or pod.key)
        return happened.PodUpdated(pod) if is_known else happened.PodAdded(pod)

    def drop_pod(self, key: str) -> list[Event]:
        """A pod disappears; nothing happens if it does not exist."""
        pod = self.pods.pop(key, None)
        return [] if pod is None else [happened.PodDeleted(pod)]

    def put(self, value: Object, uid: str = "") -> Event:
        """Another object appears, or changes. uid: where it names none."""
        where = type(value), key_of(value)
        is_known = where in self.objects
        value = self._versioned(value, value.metadata.uid or uid)
        self.objects[where] = value
        if isinstance(value, SchedulingGroup):
            self.groups[value.key] = value
        return happened.ObjectUpdated(value) if is_known else happened.ObjectAdded(value)

    def drop_group(self, key: str) -> list[Event]:
        """A group disappears; nothing happens if it does not exist."""
        group = self.groups.pop(key, None)
        if group is None:
            return []
        del self.objects[SchedulingGroup, key]
        return [happened.ObjectDeleted(group)]

    def _versioned(self, value: Any, uid: str) -> Any:
        self._version += 1
        metadata = replace(value.metadata, uid=uid, resource_version=str(self._version))
        return replace(value, metadata=metadata)

    # Requests of the scheduler.

    def bind(self, request: Bind) -> tuple[int, str, list[Event]]:
        """Bind a pod; an HTTP status (0: done), the reason of a refusal, and what watches see."""
        key = f"{request.namespace}/{request.name}"
        pod = self.pods.get(key)
        if key in self.refused:
            self.refused.discard(key)
            return FORBIDDEN, f'pods "{request.name}" is forbidden: refused by the script', []
        if pod is None or pod.uid != request.uid:
            return NOT_FOUND, f'pods "{request.name}" not found', []
        conflict = f'Operation cannot be fulfilled on pods/binding "{request.name}": '
        if pod.metadata.deletion_timestamp is not None:
            text = f"pod {request.name} is being deleted, cannot be assigned to a host"
            return CONFLICT, conflict + text, []
        if pod.node_name:
            text = f'pod {request.name} is already assigned to node "{pod.node_name}"'
            return CONFLICT, conflict + text, []
        return 0, "", [self.bound(pod, request.node)]

    def bound(self, pod: Pod, node: str) -> Event:
        """A pod gets a node, by whomever."""
        start = EPOCH + datetime.timedelta(seconds=self.arrivals[pod.key])
        status = replace(pod.status, phase="Running", nominated_node_name="", start_time=start)
        return self.put_pod(replace(pod, spec=replace(pod.spec, node_name=node), status=status))

    def patch_status(self, patch: PatchStatus) -> list[Event]:
        """Write the condition and the nomination of a pod, where they change."""
        pod = self.pods.get(f"{patch.namespace}/{patch.name}")
        if pod is None or pod.uid != patch.uid:
            return []
        status = pod.status
        if patch.reason:
            new = PodCondition("PodScheduled", "False", patch.reason, patch.message)
            others = tuple(one for one in status.conditions if one.type != new.type)
            if new not in status.conditions:
                status = replace(status, conditions=(*others, new))
        wanted = patch.nominated_node
        if wanted is not None and wanted != status.nominated_node_name:
            status = replace(status, nominated_node_name=wanted)
            self.nominated[pod.key] = wanted
        return [] if status == pod.status else [self.put_pod(replace(pod, status=status))]

    def patch_group(self, patch: PatchGroup) -> list[Event]:
        """Write the condition of a group."""
        group = self.groups.get(f"{patch.namespace}/{patch.name}")
        if group is None:
            return []
        return [self.put(with_conditions(group, patch.status.conditions))]

    def evict(self, request: Evict) -> list[Event] | None:
        """Set the condition of a victim and delete it; None if it does not exist."""
        key = f"{request.namespace}/{request.name}"
        pod = self.pods.get(key)
        if pod is None or pod.uid != request.uid:
            return None
        seen = []
        condition = PodCondition(
            "DisruptionTarget", "True", "PreemptionByScheduler", request.message
        )
        if condition not in pod.status.conditions:
            others = tuple(c for c in pod.status.conditions if c.type != condition.type)
            status = replace(pod.status, conditions=(*others, condition))
            seen.append(self.put_pod(replace(pod, status=status)))
        return seen + (self.terminate(key) if self._graceful else self.drop_pod(key))

    def terminate(self, key: str) -> list[Event]:
        """A pod gets a deletionTimestamp, unless it has one."""
        pod = self.pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return []
        metadata = replace(pod.metadata, deletion_timestamp=EPOCH)
        return [self.put_pod(replace(pod, metadata=metadata))]

    def write(self, request: Write) -> tuple[str, list[Event]] | None:
        """Write an object of its current version; the new version, None for a conflict."""
        stored = self.objects.get((type(request.value), key_of(request.value)))
        version = request.value.metadata.resource_version
        if stored is None or stored.metadata.resource_version != version:
            return None
        seen = self.put(request.value)
        return str(self._version), [seen]
