"""Job controller of Kueue: the Workloads of jobs with a queue, which start and stop with them.

Differs: a TrainJob whose runtime is missing waits for it with a warning; Kueue's webhook refuses
it. A job whose WorkloadPriorityClass is missing is looked at again when there is one; Kueue tries
again after a delay that doubles up to 1000 seconds.

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
from stowplan.controller_runtime.resource_paths import PODS
from stowplan.controllers.kueue.kueue_kinds import (
    JOB_UID_LABEL,
    MAX_TIME_LABEL,
    PRIORITY_CLASSES,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    WORKLOADS,
)
from stowplan.controllers.kueue.queued_job_kinds import JOB_KINDS, KINDS_BY_NAME, QueuedJobKind
from stowplan.controllers.kueue.workload_status import (
    ADMITTED,
    EVICTED,
    FINISHED,
    condition_of,
    holds_quota,
    is_true,
    new_workload,
    note,
    note_pods_ready,
    pod_set_infos,
    release_quota,
    workload_name,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store, WatchEvent

POD_PRIORITY_CLASSES = "scheduling.k8s.io/priorityclasses"
NO_PRIORITY_CLASS = "WorkloadPriorityClassNotFound"
"""Reason of an event."""
_REPLACED = (None, "WorkloadPriorityClass")
"""Kinds of priority classes that a Workload has which the label of its job replaces."""
OWNERS_MAX = 10
"""Owners of a job that are looked at for one that Kueue manages."""
_OF_JOB = (
    "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid",
    "job-name",
)  # fmt: skip
"""Labels that the API server gives to templates of Jobs."""
_JOB_PATHS = frozenset(one.path for one in JOB_KINDS)


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
        """Queue a changed job, and that of a changed Workload, Job, pod or runtime."""
        if change.path == self.path:
            self.queue.add(split_key(change))
        elif change.path == PODS:
            for pod in (before, self.index.pods.get(split_key(change))):
                name = "" if pod is None else self._job_of(change.namespace, pod)
                if name:
                    self.queue.add((change.namespace, name))
        elif change.path in self.kind.references or change.path == PRIORITY_CLASSES:
            # A job may wait for it.
            for job in self.api.list(self.path):
                self.queue.add((job["metadata"]["namespace"], job["metadata"]["name"]))
        elif (change.path == WORKLOADS or change.path in _JOB_PATHS) and self._mark in change.value:
            meta = (self.decoded(change.value) or {}).get("metadata") or {}
            for owner in meta.get("ownerReferences") or ():
                if owner.get("kind") == self.kind.kind:
                    self.queue.add((change.namespace, owner["name"]))

    def _job_of(self, namespace: str, pod: PodFacts) -> str:
        """Name of the job of this kind that a pod belongs to, also by way of others; "" for none.

        Watches are one per kind, so that the last change of a job may be known before those of its
        pods: then nothing but a pod has the job looked at again.
        """
        kind, name = pod.owner_kind, pod.owner_name
        for _ in range(OWNERS_MAX):
            if kind == self.kind.kind:
                return name
            between = KINDS_BY_NAME.get(kind) if self.kind.owns_jobs else None
            if between is None or not self.index.owners_of(between.path, namespace, name):
                break
            owner = controller_of(self.api.get(between.path, namespace, name) or {"metadata": {}})
            if owner is None:
                break
            kind, name = owner["kind"], owner["name"]
        return ""

    def sync(self, key: Key) -> None:
        """Create the Workload of a job, and let the job run while its Workload is admitted."""
        job = self.api.get(self.path, *key)
        if job is None or is_deleting(job):
            return
        owner = self._queued_owner(job)
        if owner is not None:
            self._follow_owner(job, *owner)
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
            self._finish(job, workload, end)
        elif not is_true(workload, FINISHED):
            self._reconcile(job, workload)

    def _reconcile(self, job: Tree, workload: Tree) -> None:
        """A job that has not ended, and its Workload."""
        reclaimable = self.kind.reclaimable(job, self.api)
        is_new = bool(reclaimable) and workload.get("status", {}).get("reclaimablePods") != (
            reclaimable
        )
        if is_new:
            workload.setdefault("status", {})["reclaimablePods"] = reclaimable
        are_ready = is_true(workload, ADMITTED) and self._are_pods_ready(workload, job)
        if note_pods_ready(workload, are_ready, self.api.now) or is_new:
            workload = self.api.update_status(WORKLOADS, workload)
        if is_true(workload, EVICTED) or not is_true(workload, ADMITTED):
            self._hold(job, workload)
        elif self.kind.switch(job).get("suspend"):
            self._start(job, workload)

    def _queued_owner(self, job: Tree) -> tuple[QueuedJobKind, Tree] | None:
        """The outermost owner that Kueue manages instead, such as a JobSet with a queue, and its
        kind."""
        found, namespace = None, job["metadata"]["namespace"]
        for _ in range(OWNERS_MAX):
            owner = controller_of(job)
            kind = KINDS_BY_NAME.get(owner["kind"]) if owner is not None else None
            if owner is None or kind is None:
                break
            above = self.api.get(kind.path, namespace, owner["name"])
            if above is None:
                break
            job = above
            if (job["metadata"].get("labels") or {}).get(QUEUE_LABEL):
                found = kind, job
        return found

    def _follow_owner(self, job: Tree, kind: QueuedJobKind, owner: Tree) -> None:
        """Suspend a job that runs although the Workload of its owner is not admitted."""
        switch = self.kind.switch(job)
        if switch.get("suspend") or self.kind.end(job) is not None:
            return
        if not kind.switch(owner).get("suspend"):
            # The owner is stopped first, or its controller would let this job run again.
            return
        workload = self._workload_of(owner)
        if workload is not None and is_true(workload, ADMITTED):
            return
        switch["suspend"] = True
        self.api.update(self.path, job)
        self._record(job, "Suspended", "Kueue managed child job suspended")

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
            self._record(job, "Stopped", "Missing Workload; unable to restore pod templates")
            return
        if self.kind.is_active(job) or self._has_pods(job["metadata"]["uid"]):
            return
        problem = self.kind.problem(job, self.api)
        if problem:
            self._record(job, "ErrWorkloadCompose", problem, "Warning")
            return
        if self._lacks_priority_class(job):
            return
        meta = job["metadata"]
        name = workload_name(self.kind.kind, self.kind.group, meta["name"], meta["uid"])
        owners = [controller_reference(job, self.kind.kind, self.kind.api_version)]
        made = new_workload(name, owners, meta["namespace"], self._spec(job))
        made["metadata"]["labels"] = {JOB_UID_LABEL: meta["uid"]}
        self.api.create(WORKLOADS, made)
        self._record(job, "CreatedWorkload", f"Created Workload: {meta['namespace']}/{name}")

    def _spec(self, job: Tree) -> Tree:
        """`spec` of a new Workload."""
        labels = job["metadata"].get("labels") or {}
        pod_sets = list(self._pod_sets(job))
        found: Tree = {"queueName": labels[QUEUE_LABEL], "podSets": pod_sets}
        name = self.kind.priority_class(job, (one["template"] for one in pod_sets))
        longest = labels.get(MAX_TIME_LABEL, "")
        if longest.isdecimal() and int(longest):
            found["maximumExecutionTimeSeconds"] = int(longest)
        return found | priority_of(labels, name, self.api)

    def _lacks_priority_class(self, job: Tree) -> bool:
        """Whether a job names a WorkloadPriorityClass that does not exist, and so waits for it."""
        text = missing_priority_class(job["metadata"].get("labels") or {}, self.api)
        if text:
            self._record(job, NO_PRIORITY_CLASS, text, "Warning")
        return bool(text)

    def _pod_sets(self, job: Tree) -> Iterator[Tree]:
        fewest = self.kind.min_count(job)
        for name, count, template in self.kind.pod_sets(job, self.api):
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

    def _finish(self, job: Tree, workload: Tree, end: Tree) -> None:
        if is_true(workload, FINISHED):
            return
        reason = "Succeeded" if end["type"] == self.kind.ends[0] else "Failed"
        text = end.get("message") or "Job finished successfully"
        note(workload, FINISHED, True, reason, text, self.api.now)
        self.api.update_status(WORKLOADS, workload)
        meta = workload["metadata"]
        text = f"Workload '{meta['namespace']}/{meta['name']}' is declared finished"
        self._record(job, "FinishedWorkload", text)

    def _hold(self, job: Tree, workload: Tree) -> None:
        """Keep a job suspended; once its pods are gone, its evicted Workload gives quota back."""
        switch = self.kind.switch(job)
        is_evicted = is_true(workload, EVICTED)
        if not switch.get("suspend"):
            switch["suspend"] = True
            self.api.update(self.path, job)
            found = (condition_of(workload, EVICTED) if is_evicted else None) or {}
            text = str(found.get("message") or "Not admitted by cluster queue")
            self._record(job, "Stopped", text)
            return
        if self.kind.is_active(job) or self._has_pods(job["metadata"]["uid"]):
            return
        before = copy.deepcopy(job["spec"])
        self.kind.restore(job, workload, self.api)
        if job["spec"] != before:
            self._forget_start(job)
            self.api.update(self.path, job)
        if is_evicted and holds_quota(workload):
            release_quota(workload, self.api.now)
            self.api.update_status(WORKLOADS, workload)
        elif not holds_quota(workload):
            self._follow_labels(job, workload)

    def _forget_start(self, job: Tree) -> None:
        """Before Kubernetes 1.36 the template of a Job may be changed only while it has no start
        time, and a suspended one keeps it."""
        if self.kind.keeps_start and (job.get("status") or {}).pop("startTime", None):
            stored = self.api.update_status(self.path, job)
            job["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]

    def _follow_labels(self, job: Tree, workload: Tree) -> None:
        """A waiting job may change its queue and its priority."""
        labels, spec = job["metadata"].get("labels") or {}, workload["spec"]
        is_moved = spec.get("queueName") != labels[QUEUE_LABEL]
        ref = spec.get("priorityClassRef") or {}
        name = labels.get(PRIORITY_LABEL, "")
        # A priority of pods stays. One whose class is missing does until there is the class.
        is_reordered = bool(name) and ref.get("name") != name and ref.get("kind") in _REPLACED
        is_reordered = is_reordered and not self._lacks_priority_class(job)
        if not is_moved and not is_reordered:
            return
        spec["queueName"] = labels[QUEUE_LABEL]
        if is_reordered:
            spec |= priority_of(labels, "", self.api)
        self.api.update(WORKLOADS, workload)
        if is_reordered:
            meta = workload["metadata"]
            text = f"Updated workload priority class: {meta['namespace']}/{meta['name']}"
            self._record(job, "UpdatedWorkload", text)

    def _has_pods(self, uid: str) -> bool:
        """Whether pods of a job, or of the jobs that it owns, have not ended."""
        return any(
            not pod.is_finished for one in self._uids(uid) for pod in self.index.of_owner(one)
        )

    def _uids(self, uid: str) -> Iterator[str]:
        """The uids of a job and of those that it owns."""
        yield uid
        for path, namespace, name in self.index.dependents(uid):
            found = self.api.get(path, namespace, name) if path in _JOB_PATHS else None
            if found is not None:
                yield from self._uids(found["metadata"]["uid"])

    def _start(self, job: Tree, workload: Tree) -> None:
        self.kind.start(job, pod_set_infos(workload, self.api), workload, self.api)
        self.kind.switch(job)["suspend"] = False
        self.api.update(self.path, job)
        queue = workload["status"]["admission"]["clusterQueue"]
        self._record(job, "Started", f"Admitted by clusterQueue {queue}")

    def _are_pods_ready(self, workload: Tree, job: Tree) -> bool:
        """Whether as many pods are ready or have succeeded as the Workload has."""
        stated = self.kind.are_pods_ready(job)
        if stated is not None:
            return stated
        pods = [
            pod for uid in self._uids(job["metadata"]["uid"]) for pod in self.index.of_owner(uid)
        ]
        wanted = sum(int(one.get("count", 1)) for one in workload["spec"]["podSets"])
        return sum(pod.ready or pod.phase == "Succeeded" for pod in pods) >= wanted

    def _record(self, job: Tree, reason: str, text: str, type_: str = "Normal") -> None:
        self.recorder.record(job, self.kind.component, reason, text, type=type_)


def missing_priority_class(labels: Tree, api: Store) -> str:
    """What is wrong if the WorkloadPriorityClass in the labels of a job or pod does not exist; else
    "". Kueue makes no Workload without it, and does not take the priority of pods instead.

    Source: pkg/controller/jobframework/reconciler.go (ExtractPriority).
    """
    name = labels.get(PRIORITY_LABEL)
    if not name or api.get(PRIORITY_CLASSES, "", name) is not None:
        return ""
    return f'WorkloadPriorityClass "{name}" not found'


def priority_of(labels: Tree, pod_class: str, api: Store) -> Tree:
    """Fields of a Workload's spec for its priority: of a WorkloadPriorityClass, else of pods.

    pod_class: their PriorityClass, "" for the default one.
    """
    name = labels.get(PRIORITY_LABEL)
    if name:
        found = api.get(PRIORITY_CLASSES, "", name) or {}
        ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}
        return {"priorityClassRef": ref, "priority": int(found.get("value") or 0)}
    for one in api.list(POD_PRIORITY_CLASSES):
        if one["metadata"]["name"] == pod_class if pod_class else one.get("globalDefault"):
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
