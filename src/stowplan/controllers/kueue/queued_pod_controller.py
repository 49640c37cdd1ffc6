"""Pod controller of Kueue: the Workloads of plain pods and pod groups with a queue.

Differs: pods that are evicted are deleted; the pods of a group that is evicted are not created
again, and those that failed are not replaced.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/controller/jobs/pod.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from hashlib import sha256

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import controller_reference
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts
from stowplan.controller_runtime.resource_paths import PODS
from stowplan.controllers.kueue.kueue_kinds import (
    ADMISSION_GATE,
    MANAGED_LABEL,
    POD_GROUP_COUNT,
    POD_GROUP_LABEL,
    POD_SET_LABEL,
    PRIORITY_CLASSES,
    QUEUE_LABEL,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
    WORKLOADS,
)
from stowplan.controllers.kueue.queued_job_controller import (
    NO_PRIORITY_CLASS,
    missing_priority_class,
    priority_of,
    topology_request,
)
from stowplan.controllers.kueue.topology_ungater import domains_of, has_gate, ungate
from stowplan.controllers.kueue.workload_status import (
    ADMITTED,
    EVICTED,
    FINISHED,
    QUOTA_RESERVED,
    condition_of,
    is_true,
    new_workload,
    note,
    note_pods_ready,
    pod_set_infos,
    release_quota,
    workload_name,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions, Store, WatchEvent

COMPONENT = "pod-kueue-controller"
_MARK = MANAGED_LABEL.encode()


class QueuedPodController(Controller):
    """Keys are namespace, and the name of a pod (`/name`) or of a pod group."""

    name = "kueue-pod-controller"
    path = ""

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._members: dict[Key, dict[str, None]] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue the group of a changed pod, and that of a changed Workload; all groups, which may
        wait for it, for a changed WorkloadPriorityClass."""
        if change.path == PODS and _MARK in change.value:
            meta = (self.decoded(change.value) or {}).get("metadata") or {}
            labels = meta.get("labels") or {}
            if labels.get(MANAGED_LABEL) == "true":
                key = _key(meta)
                members = self._members.setdefault(key, {})
                if change.type == "DELETED":
                    members.pop(meta["name"], None)
                else:
                    members[meta["name"]] = None
                self.queue.add(key)
        elif change.path == WORKLOADS:
            meta = (self.decoded(change.value) or {}).get("metadata") or {}
            pods = [one for one in meta.get("ownerReferences") or () if one["kind"] == "Pod"]
            if pods:
                is_group = (change.namespace, change.name) in self._members
                name = change.name if is_group else f"/{pods[0]['name']}"
                self.queue.add((change.namespace, name))
        elif change.path == PRIORITY_CLASSES:
            for key in self._members:
                self.queue.add(key)

    def sync(self, key: Key) -> None:
        """Create the Workload of a group that is complete, and let its pods be scheduled."""
        namespace = key[0]
        found = (self.api.get(PODS, namespace, name) for name in self._members.get(key, ()))
        pods = [pod for pod in found if pod is not None]
        if not pods:
            self._members.pop(key, None)
            self._end_without_pods(key)
            return
        workload = self.api.get(WORKLOADS, namespace, _workload_name(key, pods[0]))
        if workload is None:
            wanted = _wanted(pods[0])
            if len(pods) >= wanted:
                self._begin(key, pods)
        elif all(pod["status"].get("phase") in ("Succeeded", "Failed") for pod in pods):
            self._finish(key, pods, workload)
        elif is_true(workload, EVICTED):
            self._stop(pods, workload)
        elif is_true(workload, ADMITTED):
            self._start(pods, workload)
            self._note_ready(key, workload)

    def _finish(self, key: Key, pods: list[Tree], workload: Tree) -> None:
        """All pods have ended. A group has succeeded when none of its pods will run again."""
        if key[1].startswith("/"):
            status = pods[0]["status"]
            reason, text = str(status["phase"]), str(status.get("message") or "")
        else:
            n = sum(pod["status"]["phase"] == "Succeeded" for pod in pods)
            reason, text = "Succeeded", f"Pods succeeded: {n}/{len(pods)}."
        if note(workload, FINISHED, True, reason, text, self.api.now):
            self.api.update_status(WORKLOADS, workload)
            title = f"{key[0]}/{workload['metadata']['name']}"
            text = f"Workload '{title}' is declared finished"
            self.recorder.record(pods[0], COMPONENT, "FinishedWorkload", text)

    def _end_without_pods(self, key: Key) -> None:
        """A group whose pods are gone needs no quota."""
        if key[1].startswith("/"):
            # The garbage collector deletes the Workload with its pod.
            return
        workload = self.api.get(WORKLOADS, *key)
        if workload is None or is_true(workload, FINISHED):
            return
        if is_true(workload, EVICTED) and is_true(workload, QUOTA_RESERVED):
            release_quota(workload, self.api.now)
        text = "The pods of the group are deleted"
        note(workload, FINISHED, True, "Failed", text, self.api.now)
        self.api.update_status(WORKLOADS, workload)

    def _begin(self, key: Key, pods: list[Tree]) -> None:
        first, labels = pods[0], pods[0]["metadata"]["labels"]
        missing = missing_priority_class(labels, self.api)
        if missing:
            self.recorder.record(first, COMPONENT, NO_PRIORITY_CLASS, missing, type="Warning")
            return
        roles: dict[str, list[Tree]] = {}
        for pod in pods:
            roles.setdefault(role_of(pod), []).append(pod)
        is_group = not key[1].startswith("/")
        pod_sets = [
            _pod_set(role if is_group else "main", members) for role, members in roles.items()
        ]
        spec = {
            "queueName": labels[QUEUE_LABEL],
            "podSets": pod_sets,
            **priority_of(labels, str(first["spec"].get("priorityClassName") or ""), self.api),
        }
        owners = [controller_reference(pod, "Pod", "v1") for pod in pods]
        if is_group:
            for owner in owners:
                owner["controller"] = owner["blockOwnerDeletion"] = False
        name = _workload_name(key, first)
        self.api.create(WORKLOADS, new_workload(name, owners, key[0], spec))
        text = f"Created Workload: {key[0]}/{name}"
        self.recorder.record(first, COMPONENT, "CreatedWorkload", text)

    def _start(self, pods: list[Tree], workload: Tree) -> None:
        infos = pod_set_infos(workload, self.api)
        places = _places(workload)
        name, sets = workload["metadata"]["name"], workload["spec"]["podSets"]
        for pod in pods:
            if not has_gate(pod, ADMISSION_GATE):
                continue
            role = "main" if len(sets) == 1 and sets[0]["name"] == "main" else role_of(pod)
            info = infos.get(role)
            if info is None:
                continue
            if info.count <= 0:
                continue
            info.count -= 1
            ungate(pod, ADMISSION_GATE)
            info.apply(pod["spec"])
            pod["metadata"]["labels"][POD_SET_LABEL] = role
            notes = pod["metadata"].get("annotations") or {}
            if info.has_places:
                pod["metadata"]["annotations"] = {**notes, WORKLOAD_ANNOTATION: name}
                ungate(pod, TOPOLOGY_GATE)
                pod["spec"]["nodeSelector"] = {
                    **(pod["spec"].get("nodeSelector") or {}),
                    **places[role].pop(0),
                }
            self.api.update(PODS, pod)
            queue = workload["status"]["admission"]["clusterQueue"]
            text = f"Admitted by clusterQueue {queue}"
            self.recorder.record(pod, COMPONENT, "Started", text)

    def _note_ready(self, key: Key, workload: Tree) -> None:
        facts = [self.index.pods[key[0], name] for name in self._members[key]]
        are_ready = bool(facts) and all(pod.ready or pod.phase == "Succeeded" for pod in facts)
        if note_pods_ready(workload, are_ready, self.api.now):
            self.api.update_status(WORKLOADS, workload)

    def _stop(self, pods: list[Tree], workload: Tree) -> None:
        """Delete the pods of an evicted group; gated ones have not started and stay."""
        text = str((condition_of(workload, EVICTED) or {}).get("message", ""))
        running = [pod for pod in pods if not has_gate(pod, ADMISSION_GATE)]
        for pod in running:
            meta = pod["metadata"]
            if not meta.get("deletionTimestamp"):
                self.recorder.record(pod, COMPONENT, "Stopped", text)
                place = meta["namespace"], meta["name"]
                self.api.delete(PODS, *place, DeleteOptions(uid=meta["uid"]))
        if not running and is_true(workload, QUOTA_RESERVED):
            release_quota(workload, self.api.now)
            self.api.update_status(WORKLOADS, workload)


def _key(meta: Tree) -> Key:
    group = (meta.get("labels") or {}).get(POD_GROUP_LABEL)
    return meta["namespace"], group or f"/{meta['name']}"


def _workload_name(key: Key, pod: Tree) -> str:
    if not key[1].startswith("/"):
        return key[1]
    return workload_name("Pod", "", pod["metadata"]["name"], pod["metadata"]["uid"])


def _wanted(pod: Tree) -> int:
    meta = pod["metadata"]
    if POD_GROUP_LABEL not in (meta.get("labels") or {}):
        return 1
    text = (meta.get("annotations") or {}).get(POD_GROUP_COUNT, "")
    return int(text) if text.isdecimal() else 1


def role_of(pod: Tree) -> str:
    """Hash of what pods of the same role have in common."""
    spec = pod["spec"]
    shape = (
        [
            {"resources": one.get("resources"), "ports": one.get("ports")}
            for name in ("initContainers", "containers")
            for one in spec.get(name) or ()
        ],
        spec.get("affinity"),
        spec.get("priority"),
        spec.get("overhead"),
        spec.get("resourceClaims"),
    )
    return sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:8]


def _pod_set(name: str, pods: list[Tree]) -> Tree:
    first = pods[0]
    spec = copy.deepcopy(first["spec"])
    spec.pop("schedulingGates", None)
    found: Tree = {"name": name, "count": len(pods), "template": {"spec": spec}}
    request = topology_request(first["metadata"].get("annotations") or {})
    if request is not None:
        found["topologyRequest"] = request
    return found


def _places(workload: Tree) -> Mapping[str, list[dict[str, str]]]:
    """Labels of a place for each pod, by pod set."""
    admission = workload["status"].get("admission") or {}
    found = {}
    for one in admission.get("podSetAssignments") or ():
        assignment = one.get("topologyAssignment") or {}
        levels = assignment.get("levels") or ()
        found[str(one["name"])] = [
            dict(zip(levels, values, strict=True))
            for values, count in domains_of(assignment)
            for _ in range(count)
        ]
    return found
