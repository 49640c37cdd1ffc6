"""Job controller of Kueue: the Workloads of Jobs with a queue, which start and stop with them.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/controller/jobframework/reconciler.go,
pkg/controller/jobs/job/job_controller.go.
"""

from __future__ import annotations

import copy

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_fields import controller_reference, is_deleting
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import JOBS
from stowplan.controllers.kueue.kueue_kinds import (
    MIN_PARALLELISM,
    POD_SET_LABEL,
    PRIORITY_CLASSES,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
    WORKLOADS,
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

COMPONENT = "batch/job-kueue-controller"
POD_SET = "main"
POD_PRIORITY_CLASSES = "scheduling.k8s.io/priorityclasses"
_ENDS = ("Complete", "Failed")
_OF_JOB = (
    "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid",
    "job-name",
)  # fmt: skip
"""Labels that the API server gives to templates of Jobs."""


class QueuedJobController(Controller):
    """Keys are those of Jobs."""

    name = "kueue-job-controller"
    path = JOBS

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed Job, and that of a changed Workload."""
        if change.path == JOBS:
            self.queue.add(split_key(change))
        elif change.path == WORKLOADS:
            meta = (self.decoded(change.value) or {}).get("metadata") or {}
            for owner in meta.get("ownerReferences") or ():
                if owner.get("kind") == "Job":
                    self.queue.add((change.namespace, owner["name"]))

    def sync(self, key: Key) -> None:
        """Create the Workload of a Job, and let the Job run while its Workload is admitted."""
        job = self.api.get(JOBS, *key)
        if job is None or is_deleting(job):
            return
        if not (job["metadata"].get("labels") or {}).get(QUEUE_LABEL):
            return
        workload = self._workload_of(job)
        end = _end(job)
        if workload is None:
            if end is None:
                self._begin(job)
            return
        if end is not None:
            self._finish(workload, end)
        elif is_true(workload, EVICTED) or not is_true(workload, ADMITTED):
            self._hold(job, workload)
        elif job["spec"].get("suspend"):
            self._start(job, workload)
        else:
            self._follow(job, workload)

    def _workload_of(self, job: Tree) -> Tree | None:
        for path, namespace, name in self.index.dependents(job["metadata"]["uid"]):
            if path == WORKLOADS:
                found = self.api.get(path, namespace, name)
                if found is not None and not is_deleting(found):
                    return found
        return None

    def _begin(self, job: Tree) -> None:
        if not job["spec"].get("suspend"):
            # A Job that runs already is stopped, as Kueue does with one that it did not start.
            job["spec"]["suspend"] = True
            self.api.update(JOBS, job)
            return
        meta = job["metadata"]
        name = workload_name("Job", "batch", meta["name"], meta["uid"])
        labels = meta.get("labels") or {}
        spec = {
            "queueName": labels[QUEUE_LABEL],
            "podSets": [_pod_set(job)],
            **priority_of(labels, job["spec"]["template"]["spec"], self.api),
        }
        owners = [controller_reference(job, "Job", "batch/v1")]
        self.api.create(WORKLOADS, new_workload(name, owners, meta["namespace"], spec))
        text = f"Created Workload: {meta['namespace']}/{name}"
        self.recorder.record(job, COMPONENT, "CreatedWorkload", text)

    def _finish(self, workload: Tree, end: Tree) -> None:
        reason = "Succeeded" if end["type"] == "Complete" else "Failed"
        text = end.get("message") or "Job finished successfully"
        if note(workload, FINISHED, True, reason, text, self.api.now):
            self.api.update_status(WORKLOADS, workload)

    def _hold(self, job: Tree, workload: Tree) -> None:
        """Keep a Job suspended; once its pods are gone, its evicted Workload gives quota back."""
        if not job["spec"].get("suspend"):
            found = condition_of(workload, EVICTED) or condition_of(workload, QUOTA_RESERVED) or {}
            job["spec"]["suspend"] = True
            self.api.update(JOBS, job)
            text = str(found.get("message") or "Not admitted by cluster queue")
            self.recorder.record(job, COMPONENT, "Stopped", text)
            return
        if (job.get("status") or {}).get("active") or self._has_pods(job):
            return
        self._restore(job, workload)
        if is_true(workload, EVICTED) and is_true(workload, QUOTA_RESERVED):
            release_quota(workload, self.api.now)
            self.api.update_status(WORKLOADS, workload)

    def _has_pods(self, job: Tree) -> bool:
        return any(not pod.is_finished for pod in self.index.of_owner(job["metadata"]["uid"]))

    def _restore(self, job: Tree, workload: Tree) -> None:
        """The template as it was before the Job was started."""
        pod_set = workload["spec"]["podSets"][0]
        wanted = copy.deepcopy(pod_set["template"])
        template, before = job["spec"]["template"], copy.deepcopy(job["spec"])
        for name in ("nodeSelector", "tolerations", "schedulingGates"):
            _set(template["spec"], name, wanted["spec"].get(name))
        for name in ("labels", "annotations"):
            old = wanted.get("metadata", {}).get(name) or {}
            meta = template.setdefault("metadata", {})
            kept = {
                key: value
                for key, value in (meta.get(name) or {}).items()
                if key in old or not _is_ours(key)
            }
            _set(meta, name, kept)
        if pod_set.get("minCount") is not None:
            job["spec"]["parallelism"] = pod_set["count"]
        if job["spec"] != before:
            self.api.update(JOBS, job)

    def _start(self, job: Tree, workload: Tree) -> None:
        info = pod_set_infos(workload, self.api).get(POD_SET) or PodSetInfo(1)
        template = job["spec"]["template"]
        info.apply(template["spec"])
        if info.has_places:
            meta = template.setdefault("metadata", {})
            name = workload["metadata"]["name"]
            meta["annotations"] = {**(meta.get("annotations") or {}), WORKLOAD_ANNOTATION: name}
            meta["labels"] = {**(meta.get("labels") or {}), POD_SET_LABEL: POD_SET}
            gates = template["spec"].setdefault("schedulingGates", [])
            if all(gate["name"] != TOPOLOGY_GATE for gate in gates):
                gates.append({"name": TOPOLOGY_GATE})
        if workload["spec"]["podSets"][0].get("minCount") is not None:
            job["spec"]["parallelism"] = info.count
        job["spec"]["suspend"] = False
        self.api.update(JOBS, job)
        queue = workload["status"]["admission"]["clusterQueue"]
        text = f"Admitted by clusterQueue {queue}"
        self.recorder.record(job, COMPONENT, "Started", text)

    def _follow(self, job: Tree, workload: Tree) -> None:
        """Note ready pods, and pods whose quota is no longer needed."""
        status, spec = job.get("status") or {}, job["spec"]
        parallelism = int(spec.get("parallelism", 1))
        wanted = min(parallelism, int(spec.get("completions") or parallelism))
        ready = int(status.get("ready", 0)) + int(status.get("succeeded", 0))
        is_ready = ready >= wanted
        reason = "Started" if is_ready else "WaitForStart"
        text = "All pods reached readiness and the workload is running"
        text = text if is_ready else "Not all pods are ready or succeeded"
        is_new = note(workload, PODS_READY, is_ready, reason, text, self.api.now)
        left = reclaimable(job)
        if left and (workload["status"].get("reclaimablePods") or []) != left:
            workload["status"]["reclaimablePods"] = left
            is_new = True
        if is_new:
            self.api.update_status(WORKLOADS, workload)


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


def _pod_set(job: Tree) -> Tree:
    spec = job["spec"]
    parallelism = int(spec.get("parallelism", 1))
    count = min(parallelism, int(spec.get("completions") or parallelism))
    template = copy.deepcopy(spec["template"])
    labels = (template.get("metadata") or {}).get("labels") or {}
    for name in _OF_JOB:
        labels.pop(name, None)
    found: Tree = {"name": POD_SET, "count": count, "template": template}
    fewest = (job["metadata"].get("annotations") or {}).get(MIN_PARALLELISM, "")
    if fewest.isdecimal():
        found["minCount"] = int(fewest)
    notes = (spec["template"].get("metadata") or {}).get("annotations") or {}
    request = topology_request(notes)
    if request is not None:
        found["topologyRequest"] = request
    return found


def _end(job: Tree) -> Tree | None:
    conditions = (job.get("status") or {}).get("conditions") or ()
    ends = (one for one in conditions if one.get("type") in _ENDS and one.get("status") == "True")
    return next(ends, None)


def _is_ours(key: str) -> bool:
    return key in (WORKLOAD_ANNOTATION, POD_SET_LABEL)


def _set(tree: Tree, name: str, value: object) -> None:
    if value:
        tree[name] = value
    else:
        tree.pop(name, None)
