"""JobSet controller: creates the Jobs of JobSets, starts, stops and restarts them.

Source: sigs.k8s.io/jobset of 2026-08-18, pkg/controllers/jobset_controller.go.
"""

from __future__ import annotations

import copy

from stowplan.apis.kind.conditions import find_condition
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.timestamps import format_time
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_fields import controller_of, is_deleting
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controller_runtime.resource_paths import JOBS
from stowplan.controllers.job_sets.child_jobs import (
    RESTART_ATTEMPT,
    child_job,
    job_name,
    replicas_of,
    resume,
)
from stowplan.controllers.job_sets.job_set_kinds import JOB_SETS
from stowplan.controllers.job_sets.job_set_policies import (
    FAIL,
    JobSetFailure,
    are_dependencies_met,
    failure_of,
    has_started,
    has_succeeded,
    is_in_order,
    replicated_name,
)
from stowplan.controllers.workloads.job_sync_state import finished_condition
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions, WatchEvent

MANAGER = "jobset.sigs.k8s.io/jobset-controller"
ENDS = ("Completed", "Failed")
_COUNTERS = ("ready", "succeeded", "failed", "active", "suspended")
_IN_PROGRESS, _STARTED = "StartupPolicyInProgress", "StartupPolicyCompleted"


class JobSetController(Controller):
    """Keys are those of JobSets."""

    name = "jobset-controller"
    path = JOB_SETS
    observed = (JOB_SETS, JOBS)

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed JobSet, and that of a changed Job."""
        if change.path == JOB_SETS:
            self.queue.add(split_key(change))
        elif b'"JobSet"' in change.value:
            job = self.decoded(change.value) or {}
            owner = controller_of(job)
            if owner is not None and owner["kind"] == "JobSet":
                self.queue.add((change.namespace, owner["name"]))

    def sync(self, key: Key) -> None:
        """Bring the Jobs and the status of a JobSet up to date."""
        job_set = self.api.get(JOB_SETS, *key)
        if job_set is None or is_deleting(job_set):
            return
        if (job_set.setdefault("spec", {}).get("managedBy") or MANAGER) != MANAGER:
            return
        sync = _JobSetSync(self, job_set)
        sync.run()
        if job_set.get("status") != sync.before:
            self.api.update_status(JOB_SETS, job_set)
        for reason, text, type_ in sync.events:
            self.recorder.record(job_set, self.name, reason, text, type=type_)
        self._delete_expired(key, job_set)

    def children(self, job_set: Tree) -> list[Tree]:
        """The Jobs that a JobSet has, in the order of their names."""
        dependents = self.index.dependents(job_set["metadata"]["uid"])
        found = (self.api.get(*one) for one in sorted(dependents) if one[0] == JOBS)
        return [one for one in found if one is not None]

    def _delete_expired(self, key: Key, job_set: Tree) -> None:
        wait, end = job_set["spec"].get("ttlSecondsAfterFinished"), end_of(job_set)
        if wait is None or end is None:
            return
        due = unix_seconds(end.get("lastTransitionTime")) + float(wait)
        if due > self.api.now:
            self.queue.add(key, due)
        else:
            self.api.delete(JOB_SETS, *key, DeleteOptions(propagation="Foreground"))


class _JobSetSync:
    """One sync of a JobSet, whose status is changed. before: its status as it was. events: reason,
    text and type of what is to be recorded."""

    def __init__(self, controller: JobSetController, job_set: Tree) -> None:
        self._controller, self._api, self._job_set = controller, controller.api, job_set
        self.before = copy.deepcopy(job_set.get("status"))
        self.events: list[tuple[str, str, str]] = []
        self._status: Tree = job_set.setdefault("status", {})
        self._replicated: list[Tree] = job_set["spec"].get("replicatedJobs") or []
        self._is_suspended = bool(job_set["spec"].get("suspend"))
        self._jobs = controller.children(job_set)
        attempt = int(self._status.get("restarts") or 0)
        self._previous = [job for job in self._jobs if _attempt(job) < attempt]
        self._active: list[Tree] = []
        self._failed: list[Tree] = []
        self._complete: list[Tree] = []
        for job in self._jobs:
            if _attempt(job) >= attempt:
                end = finished_condition(job)
                kept = self._active if end is None else self._complete
                (self._failed if end is not None and end["type"] == "Failed" else kept).append(job)
        self._counts = self._counted()

    def run(self) -> None:
        """Bring Jobs and status up to date."""
        self._status["replicatedJobsStatus"] = [
            {"name": name, **counts} for name, counts in self._counts.items()
        ]
        self._status.setdefault("restarts", 0)
        if end_of(self._job_set) is not None:
            self._delete(self._active)
            return
        self._delete(self._previous)
        if not self._is_suspended and all(
            replicas_of(one)
            == self._counts[one["name"]]["ready"] + self._counts[one["name"]]["succeeded"]
            for one in self._replicated
        ):
            self._note("RestartingJobSet", False, "JobsReady", "all jobs are ready")
        if self._failed:
            self._fail(failure_of(self._job_set, self._failed))
        elif self._complete and has_succeeded(self._job_set, self._complete):
            self._end("Completed", "AllJobsCompleted", "jobset completed successfully")
        else:
            self._create_missing()
            if self._is_suspended:
                self._suspend()
            else:
                self._resume()

    def _counted(self) -> dict[str, dict[str, int]]:
        """Numbers of Jobs by replicated job and state."""
        found = {one["name"]: dict.fromkeys(_COUNTERS, 0) for one in self._replicated}
        for job in self._active:
            counts, status = found.get(replicated_name(job)), job.get("status") or {}
            if counts is None:
                continue
            n_pods = int(job["spec"].get("parallelism", 1))
            n_pods = min(n_pods, int(job["spec"].get("completions") or n_pods))
            done = int(status.get("succeeded") or 0) + int(status.get("ready") or 0)
            counts["ready"] += done >= n_pods
            counts["active"] += bool(status.get("active"))
            counts["suspended"] += bool(job["spec"].get("suspend"))
        for name, jobs in (("succeeded", self._complete), ("failed", self._failed)):
            for job in jobs:
                if replicated_name(job) in found:
                    found[replicated_name(job)][name] += 1
        return found

    def _create_missing(self) -> None:
        """Create the Jobs that may start, all but those of which one of the name is there."""
        policy = self._job_set["spec"].get("failurePolicy") or {}
        if self._previous and policy.get("restartStrategy") == "BlockingRecreate":
            return
        in_order = is_in_order(self._job_set) and not self._is_suspended
        names = {job["metadata"]["name"] for job in self._jobs}
        for one in self._replicated:
            if not are_dependencies_met(self._job_set, one, self._counts):
                continue
            if in_order and has_started(one, self._counts[one["name"]]):
                continue
            for index in range(replicas_of(one)):
                if job_name(self._job_set, one, index) not in names:
                    self._create(one, index)
            if in_order:
                self._note_startup(is_over=False)
                return
        if in_order:
            self._note_startup(is_over=True)

    def _create(self, replicated: Tree, index: int) -> None:
        job = child_job(self._job_set, replicated, index)
        try:
            self._api.create(JOBS, job)
        except ApiError as error:
            text = f'job "{job["metadata"]["name"]}" creation failed with error: {error.message}'
            self._controller.recorder.record(
                self._job_set, self._controller.name, "JobCreationFailed", text, type="Warning"
            )
            raise

    def _suspend(self) -> None:
        for job in self._active:
            if not job["spec"].get("suspend") and not is_deleting(job):
                job["spec"]["suspend"] = True
                self._api.update(JOBS, job)
        self._note("Suspended", True, "SuspendedJobs", "jobset is suspended")
        self._note("RestartingJobSet", False, "JobSetSuspended", "jobset is suspended")

    def _resume(self) -> None:
        in_order = is_in_order(self._job_set)
        for one in self._replicated:
            if not are_dependencies_met(self._job_set, one, self._counts):
                continue
            if in_order and has_started(one, self._counts[one["name"]]):
                continue
            for job in self._active:
                is_due = job["spec"].get("suspend") and not is_deleting(job)
                if is_due and replicated_name(job) == one["name"]:
                    self._resume_job(job, one)
            if in_order:
                return
        self._note("Suspended", False, "ResumeJobs", "jobset is resumed")

    def _resume_job(self, job: Tree, replicated: Tree) -> None:
        if (job.get("status") or {}).pop("startTime", None):
            # The template of a Job that has a start time may not be changed.
            stored = self._api.update_status(JOBS, job)
            job["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        resume(job, replicated)
        self._api.update(JOBS, job)

    def _fail(self, failure: JobSetFailure) -> None:
        if failure.action == FAIL:
            self._end("Failed", failure.reason, failure.message)
            return
        for name in ("restarts", *(("restartsCountTowardsMax",) if failure.counts else ())):
            self._status[name] = int(self._status.get(name) or 0) + 1
        reason = f"FailurePolicy_{failure.rule}" if failure.rule else "DefaultFailurePolicy"
        self._note("RestartingJobSet", True, reason, failure.message, "Warning")
        self.events.append((failure.reason, failure.message, "Warning"))

    def _end(self, kind: str, reason: str, message: str) -> None:
        is_failed = kind == "Failed"
        self._note(kind, True, reason, message, "Warning" if is_failed else "Normal")
        text = "jobset failed" if is_failed else message
        self._note("RestartingJobSet", False, f"JobSet{kind}", text)
        self._status["terminalState"] = kind

    def _delete(self, jobs: list[Tree]) -> None:
        for job in jobs:
            if not is_deleting(job):
                meta = job["metadata"]
                how = DeleteOptions(propagation="Foreground", uid=meta["uid"])
                self._api.delete(JOBS, meta["namespace"], meta["name"], how)

    def _note_startup(self, *, is_over: bool) -> None:
        kind, word = (_STARTED, "Completed") if is_over else (_IN_PROGRESS, "InProgress")
        text = "has completed" if is_over else "is in progress"
        self._note(kind, True, f"InOrderStartupPolicy{word}", f"in order startup policy {text}")
        other = find_condition(self._status["conditions"], _IN_PROGRESS if is_over else _STARTED)
        if other is not None:
            other["status"] = "False"

    def _note(
        self, kind: str, status: bool, reason: str, message: str, event_type: str = "Normal"
    ) -> None:
        """Set a condition, with an event if it changes; one that is new only if it is true."""
        old = find_condition(self._status.get("conditions") or (), kind)
        wanted = {"type": kind, "status": str(status), "reason": reason, "message": message}
        if old is None and not status:
            return
        if old is not None and wanted.items() <= old.items():
            return
        same = old is not None and old["status"] == wanted["status"]
        since = old["lastTransitionTime"] if old is not None and same else None
        made = {**wanted, "lastTransitionTime": since or format_time(self._api.now)}
        conditions: list[Tree] = self._status.setdefault("conditions", [])
        if old is None:
            conditions.append(made)
        else:
            conditions[conditions.index(old)] = made
        self.events.append((reason, message, event_type))


def end_of(job_set: Tree) -> Tree | None:
    """The condition by which a JobSet has ended; None while it has not."""
    conditions = (job_set.get("status") or {}).get("conditions") or ()
    return next(
        (one for one in conditions if one["type"] in ENDS and one.get("status") == "True"), None
    )


def _attempt(job: Tree) -> int:
    text = (job["metadata"].get("labels") or {}).get(RESTART_ATTEMPT, "")
    return int(text) if text.isdecimal() else 0
