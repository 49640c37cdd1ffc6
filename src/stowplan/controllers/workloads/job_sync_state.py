"""State of a Job at one sync: its pods by how they count, and the condition that ends it.

Source: kube-controller-manager v1.36, pkg/controller/job/job_controller.go and backoff_utils.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stowplan.apis.machinery.strconv import uint_or_none
from stowplan.controller_runtime.object_fields import find_condition
from stowplan.controller_runtime.object_index import PodFacts
from stowplan.controller_runtime.object_times import format_time, unix_seconds
from stowplan.controllers.workloads import completion_indexes
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.timing.due_times import exponential_backoff

JOB_TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
COMPLETION_INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
BACKOFF_BASE_SECONDS = 10.0
BACKOFF_MAX_SECONDS = 600.0


def backoff_until(n_failures: int, last: float) -> float:
    """When a pod may be created after consecutive failures, the last at `last`; 0.0: at once."""
    if not n_failures:
        return 0.0
    return last + exponential_backoff(n_failures - 1, BACKOFF_BASE_SECONDS, BACKOFF_MAX_SECONDS)


@dataclass(slots=True)
class JobBackoff:
    """Consecutive failures of a Job's pods, and the time of the last (Unix seconds)."""

    failures: int = 0
    last: float = 0.0

    def until(self) -> float:
        """When the next pod may be created; 0.0: at once."""
        return backoff_until(self.failures, self.last)

    def after(self, succeeded: Sequence[float], failed: Sequence[float]) -> JobBackoff:
        """The backoff after pods finished at these times: a success resets the count."""
        if not succeeded:
            if not failed:
                return self
            return JobBackoff(self.failures + len(failed), max(failed))
        later = [moment for moment in failed if moment > max(succeeded)]
        return JobBackoff(len(later), max(later, default=0.0))


@dataclass(slots=True)
class JobSyncState:
    """One sync of a Job. end: the condition that is about to end it, if any."""

    job: Tree
    pods: list[PodFacts]
    active: list[PodFacts] = field(default_factory=list)
    ready: int = 0
    terminating: int = 0
    new_succeeded: list[PodFacts] = field(default_factory=list)
    new_failed: list[PodFacts] = field(default_factory=list)
    succeeded: int = 0
    failed: int = 0
    indexes: set[int] = field(default_factory=set)
    end: Tree | None = None

    @classmethod
    def of(cls, job: Tree, pods: Iterable[PodFacts]) -> JobSyncState:
        """Classify the pods of a Job whose status has `uncountedTerminatedPods`."""
        state = cls(job, list(pods))
        status = job["status"]
        uncounted = status["uncountedTerminatedPods"]
        state.active = [pod for pod in state.pods if pod.is_active]
        state.ready = sum(pod.ready for pod in state.active)
        state.terminating = sum(bool(p.deleting) and not p.is_finished for p in state.pods)
        tracked = [pod for pod in state.pods if JOB_TRACKING_FINALIZER in pod.finalizers]
        counted = {*uncounted.get("succeeded", ()), *uncounted.get("failed", ())}
        fresh = [pod for pod in tracked if pod.uid not in counted]
        state.new_succeeded = [pod for pod in fresh if pod.phase == "Succeeded"]
        state.new_failed = [pod for pod in fresh if state.counts_as_failed(pod)]
        state.succeeded = status.get("succeeded", 0) + len(state.new_succeeded)
        state.succeeded += len(uncounted.get("succeeded", ()))
        state.failed = status.get("failed", 0) + len(state.new_failed)
        state.failed += len(uncounted.get("failed", ()))
        if state.is_indexed:
            known = completion_indexes.parse_indexes(
                status.get("completedIndexes", ""), state.completions or 0
            )
            done = {completion_index(pod) for pod in tracked if pod.phase == "Succeeded"}
            state.indexes = known | {i for i in done if 0 <= i < (state.completions or 0)}
            state.succeeded = len(state.indexes)
        return state

    @property
    def is_indexed(self) -> bool:
        """True for completion mode Indexed."""
        return bool(self.job["spec"].get("completionMode") == "Indexed")

    @property
    def completions(self) -> int | None:
        """`spec.completions`; None: any success is enough."""
        found = self.job["spec"].get("completions")
        return found if isinstance(found, int) else None

    @property
    def is_suspended(self) -> bool:
        """`spec.suspend`."""
        return bool(self.job["spec"].get("suspend"))

    @property
    def waits_for_end(self) -> bool:
        """True when a pod is replaced after it has finished, not when it is terminating."""
        return bool(self.job["spec"].get("podReplacementPolicy") == "Failed")

    def counts_as_failed(self, pod: PodFacts) -> bool:
        """True for a failed pod, or a terminating one (unless replacement waits for its end)."""
        if pod.phase == "Failed":
            return True
        return bool(pod.deleting) and pod.phase != "Succeeded" and not self.waits_for_end

    def wanted(self) -> int:
        """Wanted number of active pods."""
        parallelism = self.job["spec"].get("parallelism", 1)
        if self.completions is None:
            return len(self.active) if self.succeeded else int(parallelism)
        return int(max(0, min(self.completions - self.succeeded, parallelism)))

    def is_complete(self, active: int) -> bool:
        """True when enough pods have succeeded and none is active."""
        if active:
            return False
        if self.completions is None:
            return self.succeeded > 0
        return self.succeeded >= self.completions

    def failure(self, now: float) -> tuple[str, str] | None:
        """Reason and message if the Job has failed too often or run too long; None otherwise."""
        limit = self.job["spec"].get("backoffLimit", 6)
        restarts = 0
        template = self.job["spec"]["template"]["spec"]
        if template.get("restartPolicy") == "OnFailure":
            running = (p for p in self.pods if p.phase in ("Running", "Pending"))
            restarts = sum(pod.restarts_sum for pod in running)
        if self.failed > limit or (restarts and restarts >= limit):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if self.deadline() and now >= self.deadline():
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        return None

    def deadline(self) -> float:
        """When `activeDeadlineSeconds` ends; 0.0: never."""
        allowed = self.job["spec"].get("activeDeadlineSeconds")
        started = self.job["status"].get("startTime")
        if allowed is None or not started or self.is_suspended:
            return 0.0
        return unix_seconds(started) + float(allowed)


def completion_index(pod: PodFacts) -> int:
    """The completion index of a pod; -1 for none."""
    text = pod.labels.get(COMPLETION_INDEX_ANNOTATION, "")
    found = uint_or_none(text)
    return -1 if found is None else found


def finished_condition(job: Tree) -> Tree | None:
    """The condition Complete or Failed if it is true."""
    for each in (job.get("status") or {}).get("conditions") or ():
        if each.get("type") in ("Complete", "Failed") and each.get("status") == "True":
            found: Tree = each
            return found
    return None


def job_condition(type_: str, status: str, reason: str, message: str, now: float) -> Tree:
    """A Job's condition."""
    return {
        "type": type_,
        "status": status,
        "lastProbeTime": format_time(now),
        "lastTransitionTime": format_time(now),
        "reason": reason,
        "message": message,
    }


def ensure_condition(conditions: list[Tree], wanted: Tree) -> bool:
    """Add this condition to the list; False if it is there, or if it is new with status False."""
    old = find_condition(conditions, wanted["type"])
    if old is None:
        if wanted["status"] == "False":
            return False
        conditions.append(wanted)
        return True
    if all(old.get(name) == wanted[name] for name in ("status", "reason", "message")):
        return False
    old.clear()
    old.update(wanted)
    return True


def finished_at(pod: Tree) -> float:
    """When a pod finished, as far as known."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ends = [
        unix_seconds((s.get("state") or {}).get("terminated", {}).get("finishedAt"))
        for s in statuses
    ]
    if ends and all(ends):
        return max(ends)
    ready = find_condition((pod.get("status") or {}).get("conditions") or (), "Ready")
    if ready is not None and ready.get("status") == "False":
        since = unix_seconds(ready.get("lastTransitionTime"))
        if since:
            return since
    meta = pod["metadata"]
    if meta.get("deletionTimestamp"):
        grace = float(meta.get("deletionGracePeriodSeconds") or 0)
        return unix_seconds(meta["deletionTimestamp"]) - grace
    return unix_seconds(meta.get("creationTimestamp"))
