"""Training operator's controllers: the pods of PyTorchJobs and the other jobs of Kubeflow.

Differs: the launcher of an MPIJob is a pod, in the original a Job with one; Services, gang groups
and what frameworks add to containers are not there; neither changes where pods are placed.

Source: kubeflow training-operator v1.9, pkg/controller.v1/common/job.go and pod.go, and the
controllers of its kinds; mpi-operator v0.6, pkg/controller.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.conditions import find_condition
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.timestamps import format_time
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import controller_reference, is_deleting
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controller_runtime.resource_paths import PODS
from stowplan.controllers.job_sets.job_set_kinds import TRAINING_GROUP
from stowplan.controllers.workloads.pod_control import pod_from_template
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions, Store, WatchEvent

REPLICA_TYPE, REPLICA_INDEX = (
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index",
)
_MANAGERS = ("", "kubeflow.org/training-operator", "kubeflow.org/mpi-operator")
_LEADERS = {"Chief": "master", "Master": "master", "Launcher": "launcher"}
_RESTARTED = ("PyTorchJob", "PaddleJob")
"""Kinds whose pods are restarted after a failure unless they declare otherwise."""
_RETRYABLE = 128
"""Least exit code of a container that is worth another try, with the policy ExitCode."""
_ENDS = ("Succeeded", "Failed")


class TrainingJobController(Controller):
    """Keys are those of the jobs of one kind. field: of `spec` with its replicas."""

    def __init__(
        self,
        api: Store,
        index: ObjectIndex,
        recorder: EventRecorder,
        kind: str,
        field: str,
        version: str = "v1",
    ) -> None:
        super().__init__(api, index, recorder)
        self.kind, self._field = kind, field
        self._api_version = f"{TRAINING_GROUP}/{version}"
        self.name = f"{kind.lower()}-controller"
        self.path = f"{TRAINING_GROUP}/{kind.lower()}s"
        self.observed = (self.path, PODS)

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed job, and that of a changed pod."""
        if change.path == self.path:
            self.queue.add(split_key(change))
            return
        for pod in (before, self.index.pods.get(split_key(change))):
            if pod is not None and pod.owner_kind == self.kind:
                self.queue.add((change.namespace, pod.owner_name))

    def sync(self, key: Key) -> None:
        """Bring the pods and the status of a job up to date."""
        job = self.api.get(self.path, *key)
        if job is None or is_deleting(job):
            return
        if problem := next(self._problems(job), ""):
            self._refuse(job, problem)
            return
        policy = job["spec"].get("runPolicy") or {}
        if (policy.get("managedBy") or "") not in _MANAGERS:
            return
        pods = self.index.of_owner(job["metadata"]["uid"])
        if _end(job) is not None:
            self._clean_up(key, job, pods, policy)
            return
        before = copy.deepcopy(job.get("status"))
        status = job.setdefault("status", {})
        if not status.get("conditions"):
            self._note(job, "Created", f"{self.kind} {key[1]} is created.")
        if policy.get("suspend"):
            self._suspend(job, pods)
        else:
            self._run(job, pods)
        if status != before:
            self.api.update_status(self.path, job)

    def _problems(self, job: Tree) -> Iterator[str]:
        """What is wrong in a job. The definitions of most kinds keep every field."""
        spec = job.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        if not isinstance(spec.get("runPolicy") or {}, dict):
            yield "spec.runPolicy: Invalid value: must be an object"
        field, replicas = f"spec.{self._field}", spec.get(self._field)
        if not isinstance(replicas, dict) or not replicas:
            yield f"{field}: Required value"
            return
        for name, replica in replicas.items():
            given = replica if isinstance(replica, dict) else {}
            n = given.get("replicas", 1)
            if type(n) is not int or n < 0:
                text = "must be a whole number of at least 0"
                yield f"{field}.{name}.replicas: Invalid value: {json.dumps(n)}: {text}"
            if not _containers(given):
                yield f"{field}.{name}.template.spec.containers: Required value"

    def _refuse(self, job: Tree, problem: str) -> None:
        """Let a job fail that makes no sense, as the operator does without its webhooks."""
        if _end(job) is not None:
            return
        title = f"{self.kind} {job['metadata']['name']}"
        job.setdefault("status", {})
        text = f"{title} failed validation because {problem}"
        self._note(job, "Failed", text, "FailedValidation")
        self.api.update_status(self.path, job)

    def _suspend(self, job: Tree, pods: list[PodFacts]) -> None:
        for pod in pods:
            self._delete(pod)
        job["status"].pop("startTime", None)
        job["status"]["replicaStatuses"] = {name: {} for name in self._replicas(job)}
        self._note(job, "Suspended", f"{self.kind} {job['metadata']['name']} is suspended.")

    def _run(self, job: Tree, pods: list[PodFacts]) -> None:
        """Create the pods that are missing, and see how those fare that are there."""
        status = job["status"]
        if not status.get("startTime"):
            status["startTime"] = format_time(self.api.now)
        known = {pod.key[1]: pod for pod in pods}
        counts: Tree = {}
        for name, replica in self._replicas(job).items():
            found = counts[name] = {"active": 0, "succeeded": 0, "failed": 0}
            for index in range(int(replica.get("replicas", 1))):
                pod = known.get(self._pod_name(job, name, index))
                if pod is None:
                    self._create(job, self._pod(job, name, replica, index))
                elif pod.phase == "Failed" and self._is_retried(replica, pod):
                    self._delete(pod)
                elif not pod.deleting:
                    found["active"] += pod.phase == "Running"
                    found["succeeded"] += pod.phase == "Succeeded"
                    found["failed"] += pod.phase == "Failed"
        status["replicaStatuses"] = {
            name: {key: n for key, n in found.items() if n} for name, found in counts.items()
        }
        self._note_outcome(job, counts)

    def _create(self, job: Tree, pod: Tree) -> None:
        try:
            self.api.create(PODS, pod)
        except ApiError as problem:
            if problem.code != 404:
                text = f"Error creating: {problem}"
                self.recorder.record(job, self.name, "FailedCreatePod", text, type="Warning")
            raise

    def _note_outcome(self, job: Tree, counts: Tree) -> None:
        """The condition that follows from the numbers of pods."""
        title = f"{self.kind} {job['metadata']['name']}"
        if any(found["failed"] for found in counts.values()):
            self._note(job, "Failed", f"{title} is failed because a replica has failed.")
        elif self._has_succeeded(job, counts):
            self._note(job, "Succeeded", f"{title} is successfully completed.")
        elif any(found["active"] for found in counts.values()):
            self._note(job, "Running", f"{title} is running.")
            return
        else:
            return
        if _end(job) is not None:
            job["status"]["completionTime"] = format_time(self.api.now)

    def _has_succeeded(self, job: Tree, counts: Tree) -> bool:
        """Whether the pods have succeeded that count: those of a leader, or else workers."""
        replicas = self._replicas(job)
        leader = next((name for name in _LEADERS if name in replicas), None)
        if (
            leader is None
            and self.kind == "TFJob"
            and job["spec"].get("successPolicy") != "AllWorkers"
        ):
            pods = self.index.of_owner(job["metadata"]["uid"])
            first = self._pod_name(job, "Worker", 0)
            return any(pod.key[1] == first and pod.phase == "Succeeded" for pod in pods)
        name = leader or "Worker"
        wanted = int((replicas.get(name) or {}).get("replicas", 1))
        return name in counts and bool(counts[name]["succeeded"] >= wanted)

    def _is_retried(self, replica: Tree, pod: PodFacts) -> bool:
        """Whether a failed pod is created again: by its exit code, where that is the policy."""
        if replica.get("restartPolicy") != "ExitCode":
            return False
        found = self.api.get(PODS, *pod.key) or {}
        statuses = (found.get("status") or {}).get("containerStatuses") or ()
        ends = ((one.get("state") or {}).get("terminated") or {} for one in statuses)
        return any(int(end.get("exitCode") or 0) >= _RETRYABLE for end in ends)

    def _clean_up(self, key: Key, job: Tree, pods: list[PodFacts], policy: Tree) -> None:
        """Delete what is left of a job that has ended, and the job after its time to live."""
        kept = policy.get("cleanPodPolicy") or "None"
        for pod in pods:
            if kept == "All" or (kept == "Running" and not pod.is_finished):
                self._delete(pod)
        wait = policy.get("ttlSecondsAfterFinished")
        if wait is None:
            return
        due = unix_seconds(job["status"].get("completionTime")) + float(wait)
        if due > self.api.now:
            self.queue.add(key, due)
        else:
            self.api.delete(self.path, *key, DeleteOptions(propagation="Background"))

    def _delete(self, pod: PodFacts) -> None:
        if not pod.deleting:
            self.api.delete(PODS, *pod.key, DeleteOptions(uid=pod.uid))

    def _replicas(self, job: Tree) -> Tree:
        found: Tree = job["spec"].get(self._field) or {}
        return found

    def _pod_name(self, job: Tree, name: str, index: int) -> str:
        return f"{job['metadata']['name']}-{name.lower()}-{index}"

    def _pod(self, job: Tree, name: str, replica: Tree, index: int) -> Tree:
        owner = controller_reference(job, self.kind, self._api_version)
        made = pod_from_template(replica["template"], job, owner)
        meta = made["metadata"]
        del meta["generateName"]
        meta["name"] = self._pod_name(job, name, index)
        role = _LEADERS.get(name) or ("worker" if self.kind == "MPIJob" else "")
        meta["labels"] = {
            **meta.get("labels", {}),
            "training.kubeflow.org/job-name": job["metadata"]["name"],
            "training.kubeflow.org/operator-name": self.name,
            REPLICA_TYPE: name.lower(),
            REPLICA_INDEX: str(index),
            **({"training.kubeflow.org/job-role": role} if role else {}),
        }
        default = "OnFailure" if self.kind in _RESTARTED else "Never"
        policy = replica.get("restartPolicy") or default
        made["spec"]["restartPolicy"] = "Never" if policy == "ExitCode" else policy
        return made

    def _note(self, job: Tree, kind: str, message: str, why: str = "") -> None:
        """Make a condition true, and those that it ends false. why: the end of its reason, if that
        is not its kind."""
        status = job["status"]
        conditions: list[Tree] = status.setdefault("conditions", [])
        old = find_condition(conditions, kind)
        if old is not None and old["status"] == "True":
            return
        now = format_time(self.api.now)
        reason = f"{self.kind}{why or kind}"
        made = {
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastUpdateTime": now, "lastTransitionTime": now,
        }  # fmt: skip
        if old is not None:
            conditions.remove(old)
        conditions.append(made)
        for one in conditions[:-1]:
            if one["type"] != "Created" and one["status"] == "True":
                one |= {"status": "False", "lastUpdateTime": now, "lastTransitionTime": now}
        type_ = "Warning" if kind == "Failed" else "Normal"
        self.recorder.record(job, self.name, reason, message, type=type_)


def _containers(replica: Tree) -> Any:
    found: Any = replica
    for step in ("template", "spec", "containers"):
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _end(job: Tree) -> Tree | None:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return next(
        (one for one in conditions if one["type"] in _ENDS and one["status"] == "True"), None
    )
