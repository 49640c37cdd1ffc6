"""Trainer's controller: the JobSet of a TrainJob, and the status of the TrainJob.

Differs: what frameworks of a runtime add to containers (torch, mpi, ...) is not there; it does not
change where pods are placed.

Source: kubeflow trainer v2.1, pkg/controller/trainjob_controller.go,
pkg/runtime/framework/plugins/jobset.
"""

from __future__ import annotations

import copy

from stowplan.apis.kind.conditions import find_condition, set_status_condition
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_fields import (
    controller_of,
    controller_reference,
    is_deleting,
)
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.controllers.job_sets.job_set_controller import end_of
from stowplan.controllers.job_sets.job_set_kinds import JOB_SET_VERSION, JOB_SETS
from stowplan.controllers.kueue.train_jobs import (
    RUNTIMES,
    TRAIN_JOBS,
    child_job_set_spec,
    runtime_key,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import WatchEvent

MANAGER = "trainer.kubeflow.org/trainjob-controller"
_API_VERSION = "trainer.kubeflow.org/v1alpha1"
_ENDS = ("Complete", "Failed")


class TrainJobController(Controller):
    """Keys are those of TrainJobs."""

    name = "trainjob-controller"
    path = TRAIN_JOBS
    observed = (TRAIN_JOBS, JOB_SETS, *RUNTIMES.values())

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed TrainJob, that of a changed JobSet, and all when a runtime changes."""
        if change.path == TRAIN_JOBS:
            self.queue.add(split_key(change))
        elif change.path == JOB_SETS:
            owner = controller_of(self.decoded(change.value) or {"metadata": {}})
            if owner is not None and owner["kind"] == "TrainJob":
                self.queue.add((change.namespace, owner["name"]))
        else:
            for job in self.api.list(TRAIN_JOBS):
                self.queue.add((job["metadata"]["namespace"], job["metadata"]["name"]))

    def sync(self, key: Key) -> None:
        """Create the JobSet, let it run as the TrainJob does, and report how it fares."""
        job = self.api.get(TRAIN_JOBS, *key)
        if job is None or is_deleting(job):
            return
        if (job.setdefault("spec", {}).get("managedBy") or MANAGER) != MANAGER or _has_ended(job):
            return
        runtime = self.api.get(*runtime_key(job)) if runtime_key(job)[0] else None
        if runtime is None:
            return
        job_set = self.api.get(JOB_SETS, *key)
        if job_set is None:
            job_set = self.api.create(JOB_SETS, self._job_set(job, runtime))
        elif not is_deleting(job_set) and end_of(job_set) is None:
            self._follow(job, job_set, runtime)
        before = copy.deepcopy(job.get("status"))
        self._note_state(job, job_set)
        if job.get("status") != before:
            self.api.update_status(TRAIN_JOBS, job)

    def _job_set(self, job: Tree, runtime: Tree) -> Tree:
        meta, template = job["metadata"], (runtime.get("spec") or {}).get("template") or {}
        found = template.get("metadata") or {}
        return {
            "apiVersion": JOB_SET_VERSION,
            "kind": "JobSet",
            "metadata": {
                "name": meta["name"],
                "namespace": meta["namespace"],
                "labels": {**(found.get("labels") or {}), **(job["spec"].get("labels") or {})},
                "annotations": {
                    **(found.get("annotations") or {}),
                    **(job["spec"].get("annotations") or {}),
                },
                "ownerReferences": [controller_reference(job, "TrainJob", _API_VERSION)],
            },
            "spec": self._spec(job, runtime),
        }

    def _spec(self, job: Tree, runtime: Tree) -> Tree:
        found = child_job_set_spec(job, runtime, with_kueue=True)
        found["suspend"] = bool(job["spec"].get("suspend"))
        return found

    def _follow(self, job: Tree, job_set: Tree, runtime: Tree) -> None:
        """Suspend or resume the JobSet; while it is suspended its pods may change."""
        is_suspended = bool(job["spec"].get("suspend"))
        was_suspended = bool(job_set["spec"].get("suspend"))
        before = copy.deepcopy(job_set["spec"])
        if was_suspended:
            wanted = self._spec(job, runtime)
            job_set["spec"]["replicatedJobs"] = wanted["replicatedJobs"]
        job_set["spec"]["suspend"] = is_suspended
        if job_set["spec"] != before:
            self.api.update(JOB_SETS, job_set)

    def _note_state(self, job: Tree, job_set: Tree) -> None:
        status = job.setdefault("status", {})
        counts = (job_set.get("status") or {}).get("replicatedJobsStatus")
        if counts:
            status["jobsStatus"] = copy.deepcopy(counts)
        conditions = status.setdefault("conditions", [])
        is_suspended = bool(job["spec"].get("suspend"))
        if is_suspended or find_condition(conditions, "Suspended") is not None:
            word = "suspended" if is_suspended else "resumed"
            self._note(conditions, "Suspended", is_suspended, word.title(), f"TrainJob is {word}")
        end = end_of(job_set)
        if end is not None:
            kind = "Complete" if end["type"] == "Completed" else "Failed"
            self._note(conditions, kind, True, end["reason"], end.get("message") or "")

    def _note(
        self, conditions: list[Tree], kind: str, status: bool, reason: str, message: str
    ) -> None:
        made = {"type": kind, "status": str(status), "reason": reason, "message": message}
        old = find_condition(conditions, kind)
        if old is None or not made.items() <= old.items():
            set_status_condition(conditions, {**made, "observedGeneration": 0}, self.api.now)


def _has_ended(job: Tree) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(one["type"] in _ENDS and one.get("status") == "True" for one in conditions)
