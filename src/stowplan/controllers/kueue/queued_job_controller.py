"""Job controller of Kueue: the Workloads of jobs with a queue, which start and stop with them.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/controller/jobframework/reconciler.go,
pkg/controller/jobs/job/job_controller.go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import (
    controller_of,
    controller_reference,
    is_deleting,
)
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import JOBS, PODS
from stowplan.controllers.kueue.kueue_kinds import (
    POD_SET_LABEL,
    PRIORITY_CLASSES,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
    WORKLOADS,
)
from stowplan.controllers.kueue.queued_job_kinds import (
    BATCH_JOBS,
    KINDS_BY_NAME,
    POD_SET,
    QueuedJobKind,
    pods_at_once,
)
from stowplan.controllers.kueue.workload_status import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PODS_READY,
    QUOTA_RESERVED,
    PodSetInfo,
    condition_of,
    is_true,
    new_workload,
    note,
    pod_set_infos,
    release_quota,
    workload_name,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store, WatchEvent

POD_PRIORITY_CLASSES = "scheduling.k8s.io/priorityclasses"
_OF_JOB = (
    "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid",
    "job-name",
)  # fmt: skip
"""Labels that the API server gives to templates of Jobs."""


class QueuedJobController(Controller):
    """Keys are those of the jobs of one kind."""

    def __init__(
        self, api: Store, index: ObjectIndex, recorder: EventRecorder, kind: QueuedJobKind
    ) -> None:
        super().__init__(api, index, recorder)
        self.kind = kind
        self.name = f"kueue-{kind.kind.lower()}-controller"
        self.path = kind.path
        self._mark = f'"{kind.kind}"'.encode()

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed job, and that of a changed Workload, Job or pod."""
        if change.path == self.path:
            self.queue.add(split_key(change))
        elif change.path == PODS:
            for pod in (before, self.index.pods.get(split_key(change))):
                if pod is not None and pod.owner_kind == self.kind.kind:
                    self.queue.add((change.namespace, pod.owner_name))
        elif change.path in (WORKLOADS, JOBS) and self._mark in change.value:
            meta = (self.decoded(change.value) or {}).get("metadata") or {}
            for owner in meta.get("ownerReferences") or ():
                if owner.get("kind") == self.kind.kind:
                    self.queue.add((change.namespace, owner["name"]))

    def sync(self, key: Key) -> None:
        """Create the Workload of a job, and let the job run while its Workload is admitted."""
        job = self.api.get(self.path, *key)
        if job is None or is_deleting(job) or self._has_queued_owner(job):
            return
        if not (job["metadata"].get("labels") or {}).get(QUEUE_LABEL):
            return
        workload = self._workload_of(job)
        end = self.kind.end(job)
        if workload is None:
            if end is None:
                self._begin(job)
            return
        if end is not None:
            self._finish(workload, end)
        elif is_true(workload, EVICTED) or not is_true(workload, ADMITTED):
            self._hold(job, workload)
        elif self.kind.switch(job).get("suspend"):
            self._start(job, workload)
        else:
            self._follow(job, workload)

    def _has_queued_owner(self, job: Tree) -> bool:
        """Whether Kueue manages the owner instead, such as a JobSet."""
        owner = controller_of(job)
        kind = KINDS_BY_NAME.get(owner["kind"]) if owner is not None else None
        if owner is None or kind is None:
            return False
        found = self.api.get(kind.path, job["metadata"]["namespace"], owner["name"]) or {}
        return bool(((found.get("metadata") or {}).get("labels") or {}).get(QUEUE_LABEL))

    def _workload_of(self, job: Tree) -> Tree | None:
        for path, namespace, name in self.index.dependents(job["metadata"]["uid"]):
            if path == WORKLOADS:
                found = self.api.get(path, namespace, name)
                if found is not None and not is_deleting(found):
                    return found
        return None

    def _begin(self, job: Tree) -> None:
        switch = self.kind.switch(job)
        if not switch.get("suspend"):
            # A job that runs already is stopped, as Kueue does with one that it did not start.
            switch["suspend"] = True
            self.api.update(self.path, job)
            return
        meta = job["metadata"]
        name = workload_name(self.kind.kind, self.kind.group, meta["name"], meta["uid"])
        labels = meta.get("labels") or {}
        pod_sets = list(self._pod_sets(job))
        spec = {
            "queueName": labels[QUEUE_LABEL],
            "podSets": pod_sets,
            **priority_of(labels, pod_sets[0]["template"]["spec"], self.api),
        }
        owners = [controller_reference(job, self.kind.kind, self.kind.api_version)]
        self.api.create(WORKLOADS, new_workload(name, owners, meta["namespace"], spec))
        text = f"Created Workload: {meta['namespace']}/{name}"
        self.recorder.record(job, self.kind.component, "CreatedWorkload", text)

    def _pod_sets(self, job: Tree) -> Iterator[Tree]:
        fewest = self.kind.min_count(job)
        for name, count, template in self.kind.pod_sets(job):
            copied = copy.deepcopy(template)
            meta = copied.get("metadata") or {}
            for label in _OF_JOB:
                (meta.get("labels") or {}).pop(label, None)
            found: Tree = {"name": name, "count": count, "template": copied}
            if fewest is not None:
                found["minCount"] = fewest
            request = topology_request(meta.get("annotations") or {})
            if request is not None:
                found["topologyRequest"] = request
            yield found

    def _finish(self, workload: Tree, end: Tree) -> None:
        reason = "Succeeded" if end["type"] == self.kind.ends[0] else "Failed"
        text = end.get("message") or "Job finished successfully"
        if note(workload, FINISHED, True, reason, text, self.api.now):
            self.api.update_status(WORKLOADS, workload)

    def _hold(self, job: Tree, workload: Tree) -> None:
        """Keep a job suspended; once its pods are gone, its evicted Workload gives quota back."""
        switch = self.kind.switch(job)
        if not switch.get("suspend"):
            found = condition_of(workload, EVICTED) or condition_of(workload, QUOTA_RESERVED) or {}
            switch["suspend"] = True
            self.api.update(self.path, job)
            text = str(found.get("message") or "Not admitted by cluster queue")
            self.recorder.record(job, self.kind.component, "Stopped", text)
            return
        if (job.get("status") or {}).get("active") or self._has_pods(job["metadata"]["uid"]):
            return
        self._restore(job, workload)
        if is_true(workload, EVICTED) and is_true(workload, QUOTA_RESERVED):
            release_quota(workload, self.api.now)
            self.api.update_status(WORKLOADS, workload)

    def _has_pods(self, uid: str) -> bool:
        """Whether pods of a job, or of the Jobs that it owns, have not ended."""
        if any(not pod.is_finished for pod in self.index.of_owner(uid)):
            return True
        owned = (
            self.api.get(JOBS, namespace, name)
            for path, namespace, name in self.index.dependents(uid)
            if path == JOBS
        )
        return any(self._has_pods(one["metadata"]["uid"]) for one in owned if one is not None)

    def _restore(self, job: Tree, workload: Tree) -> None:
        """The templates as they were before the job was started."""
        before = copy.deepcopy(job["spec"])
        held = {one["name"]: one for one in workload["spec"]["podSets"]}
        for pod_set, _, template in self.kind.pod_sets(job):
            if pod_set in held:
                _restore_template(template, held[pod_set]["template"])
        first = workload["spec"]["podSets"][0]
        if first.get("minCount") is not None:
            job["spec"]["parallelism"] = first["count"]
        if job["spec"] != before:
            self.api.update(self.path, job)

    def _start(self, job: Tree, workload: Tree) -> None:
        infos = pod_set_infos(workload, self.api)
        for pod_set, _, template in self.kind.pod_sets(job):
            info = infos.get(pod_set) or PodSetInfo(1)
            info.apply(template["spec"])
            if info.has_places:
                _gate_template(template, workload["metadata"]["name"], pod_set)
        first = workload["spec"]["podSets"][0]
        if first.get("minCount") is not None and first["name"] in infos:
            job["spec"]["parallelism"] = infos[first["name"]].count
        self.kind.switch(job)["suspend"] = False
        self.api.update(self.path, job)
        queue = workload["status"]["admission"]["clusterQueue"]
        text = f"Admitted by clusterQueue {queue}"
        self.recorder.record(job, self.kind.component, "Started", text)

    def _follow(self, job: Tree, workload: Tree) -> None:
        """Note ready pods, and pods whose quota is no longer needed."""
        is_job = self.kind is BATCH_JOBS
        is_ready = _are_ready(job) if is_job else self._are_all_ready(workload, job)
        reason = "Started" if is_ready else "WaitForStart"
        text = "All pods reached readiness and the workload is running"
        text = text if is_ready else "Not all pods are ready or succeeded"
        is_new = note(workload, PODS_READY, is_ready, reason, text, self.api.now)
        left = reclaimable(job) if is_job else []
        if left and (workload["status"].get("reclaimablePods") or []) != left:
            workload["status"]["reclaimablePods"] = left
            is_new = True
        if is_new:
            self.api.update_status(WORKLOADS, workload)

    def _are_all_ready(self, workload: Tree, job: Tree) -> bool:
        """Whether as many pods are ready or have succeeded as the Workload has."""
        uids = [job["metadata"]["uid"]]
        for path, namespace, name in self.index.dependents(uids[0]):
            found = self.api.get(JOBS, namespace, name) if path == JOBS else None
            if found is not None:
                uids.append(found["metadata"]["uid"])
        pods = [pod for uid in uids for pod in self.index.of_owner(uid)]
        wanted = sum(int(one.get("count", 1)) for one in workload["spec"]["podSets"])
        return sum(pod.ready or pod.phase == "Succeeded" for pod in pods) >= wanted


def _are_ready(job: Tree) -> bool:
    status = job.get("status") or {}
    return int(status.get("ready", 0)) + int(status.get("succeeded", 0)) >= pods_at_once(
        job["spec"]
    )


def _restore_template(template: Tree, wanted: Tree) -> None:
    for name in ("nodeSelector", "tolerations", "schedulingGates"):
        _set(template["spec"], name, copy.deepcopy(wanted["spec"].get(name)))
    meta = template.setdefault("metadata", {})
    for name in ("labels", "annotations"):
        old = (wanted.get("metadata") or {}).get(name) or {}
        now = meta.get(name) or {}
        _set(meta, name, {key: now[key] for key in now if key in old or not _is_ours(key)})


def _gate_template(template: Tree, workload: str, pod_set: str) -> None:
    """Pods of the template wait for their places in a topology."""
    meta = template.setdefault("metadata", {})
    meta["annotations"] = {**(meta.get("annotations") or {}), WORKLOAD_ANNOTATION: workload}
    meta["labels"] = {**(meta.get("labels") or {}), POD_SET_LABEL: pod_set}
    gates = template["spec"].setdefault("schedulingGates", [])
    if all(gate["name"] != TOPOLOGY_GATE for gate in gates):
        gates.append({"name": TOPOLOGY_GATE})


def reclaimable(job: Tree) -> list[Tree]:
    """Pods of a Job that will not be created again: fewer are left than may run at once."""
    spec, done = job["spec"], int((job.get("status") or {}).get("succeeded", 0))
    parallelism = int(spec.get("parallelism", 1))
    if parallelism == 1 or not done:
        return []
    left = int(spec.get("completions") or 1) - done
    return [] if left >= parallelism else [{"name": POD_SET, "count": parallelism - left}]


def priority_of(labels: Tree, template: Tree, api: Store) -> Tree:
    """Fields of a Workload's spec for its priority: of a WorkloadPriorityClass, else of pods."""
    name = labels.get(PRIORITY_LABEL)
    if name:
        found = api.get(PRIORITY_CLASSES, "", name) or {}
        ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}
        return {"priorityClassRef": ref, "priority": int(found.get("value") or 0)}
    name = template.get("priorityClassName")
    classes = list(api.list(POD_PRIORITY_CLASSES))
    for one in classes:
        if one["metadata"]["name"] == name if name else one.get("globalDefault"):
            title = one["metadata"]["name"]
            ref = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": title}
            return {"priorityClassRef": ref, "priority": int(one.get("value") or 0)}
    return {"priority": 0}


def topology_request(notes: Tree) -> Tree | None:
    """The topology request in the annotations of pods."""
    names = {"required": "required", "preferred": "preferred", "unconstrained": "unconstrained"}
    found: Tree = {}
    for field, word in names.items():
        value = notes.get(f"kueue.x-k8s.io/podset-{word}-topology")
        if value:
            found[field] = value == "true" if field == "unconstrained" else value
    slices = notes.get("kueue.x-k8s.io/podset-slice-required-topology")
    size = notes.get("kueue.x-k8s.io/podset-slice-size", "")
    if slices and size.isdecimal():
        found |= {"podSetSliceRequiredTopology": slices, "podSetSliceSize": int(size)}
    group = notes.get("kueue.x-k8s.io/podset-group-name")
    if found and group:
        found["podSetGroupName"] = group
    return found or None


def _is_ours(key: str) -> bool:
    return key in (WORKLOAD_ANNOTATION, POD_SET_LABEL)


def _set(tree: Tree, name: str, value: object) -> None:
    if value:
        tree[name] = value
    else:
        tree.pop(name, None)
