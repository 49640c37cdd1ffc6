"""Phases of a Volcano Job: what events do by its policies, and which phase follows.

Source: volcano master of 2026-08-20, pkg/controllers/job/state, job_controller_util.go
(applyPolicies).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stowplan.objects.encoding.duration import parse
from stowplan.objects.encoding.tree import Tree

SYNC, RESTART_JOB, ABORT, COMPLETE, TERMINATE = (
    "SyncJob", "RestartJob", "AbortJob", "CompleteJob", "TerminateJob",
)  # fmt: skip
RESUME = "ResumeJob"
RESTART_TASK, RESTART_POD, RESTART_PARTITION = "RestartTask", "RestartPod", "RestartPartition"
TARGETED = frozenset({RESTART_TASK, RESTART_POD, RESTART_PARTITION})

POD_FAILED, POD_EVICTED, POD_PENDING = "PodFailed", "PodEvicted", "PodPending"
TASK_COMPLETED, TASK_FAILED, JOB_UNKNOWN, ANY = "TaskCompleted", "TaskFailed", "Unknown", "*"

PENDING, RUNNING, RESTARTING = "Pending", "Running", "Restarting"
ABORTING, COMPLETING, TERMINATING = "Aborting", "Completing", "Terminating"
ABORTED = "Aborted"
ENDED = frozenset({ABORTED, "Completed", "Terminated", "Failed"})

KILLS = {
    RESTART_JOB: RESTARTING,
    ABORT: ABORTING,
    COMPLETE: COMPLETING,
    TERMINATE: TERMINATING,
}
"""Action that deletes pods -> phase."""
ENDS = {ABORTING: ABORTED, COMPLETING: "Completed", TERMINATING: "Terminated"}
"""Phase -> the one that follows once no pod is alive."""


class JobEvent(msgspec.Struct, frozen=True):
    """What happened to a pod, a task or a job. uid, partition: of the pod. exit_code: of a failed
    container, 0 for none."""

    event: str
    task: str
    pod: str = ""
    exit_code: int = 0
    uid: str = ""
    partition: str = ""


class JobAction(msgspec.Struct, frozen=True):
    """What a policy does. delay_s: its timeout."""

    action: str
    event: JobEvent
    delay_s: float = 0.0


class JobCounts(msgspec.Struct):
    """Pods of a job by phase. by_task: task -> phase -> number."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0
    by_task: dict[str, dict[str, int]] = {}

    def count(self, task: str, phase: str) -> None:
        """Count a pod that is not terminating."""
        name = phase.lower() if phase in ("Pending", "Running", "Succeeded", "Failed") else ""
        field = name or "unknown"
        setattr(self, field, getattr(self, field) + 1)
        phases = self.by_task.setdefault(task, {})
        phases[phase] = phases.get(phase, 0) + 1

    @property
    def is_alive(self) -> bool:
        """True if a pod is pending, running or terminating."""
        return bool(self.pending or self.running or self.terminating)


def action_for(job: Tree, event: JobEvent) -> JobAction:
    """The first policy of the task, or else of the job, that an event meets; else a sync."""
    for task in job["spec"]["tasks"]:
        if task["name"] == event.task:
            found = _first(task.get("policies") or (), event)
            if found is not None:
                return found
    return _first(job["spec"].get("policies") or (), event) or JobAction(SYNC, event)


def _first(policies: Iterable[Tree], event: JobEvent) -> JobAction | None:
    for policy in policies:
        events = {*(policy.get("events") or ()), policy.get("event")} - {None, ""}
        by_event = bool(events & {event.event, ANY})
        if event.event == POD_PENDING and not policy.get("timeout"):
            # Every pod is pending first: only for how long matters.
            by_event = False
        code = policy.get("exitCode")
        if by_event or (code is not None and code == event.exit_code):
            action = str(policy.get("action") or SYNC)
            return JobAction(action, event, _seconds(policy.get("timeout")))
    return None


def _seconds(text: str | None) -> float:
    """The timeout of a policy, 0 for none and for one that is no duration."""
    try:
        return parse(text or "0").total_seconds()
    except ValueError:
        return 0.0


def next_phase(job: Tree, counts: JobCounts, phase: str) -> str:
    """The phase of a job that nothing has happened to, by its pods."""
    spec = job["spec"]
    n_pods = sum(task["replicas"] for task in spec["tasks"])
    if phase in ("", PENDING):
        is_up = spec["minAvailable"] <= counts.running + counts.succeeded + counts.failed
        return RUNNING if is_up else PENDING
    if phase == RESTARTING:
        if (job.get("status") or {}).get("retryCount", 0) >= spec["maxRetry"]:
            return "Failed"
        return PENDING if n_pods - counts.terminating >= spec["minAvailable"] else phase
    if phase in ENDS:
        return phase if counts.is_alive else ENDS[phase]
    if phase != RUNNING or n_pods == 0:
        return phase
    return _after_running(job, counts, n_pods)


def _after_running(job: Tree, counts: JobCounts, n_pods: int) -> str:
    spec = job["spec"]
    wanted = spec.get("minSuccess")
    if wanted is not None and counts.succeeded >= wanted:
        return "Completed"
    if counts.succeeded + counts.failed == n_pods:
        if spec["minAvailable"] >= sum(task["minAvailable"] for task in spec["tasks"]):
            for task in spec["tasks"]:
                phases = counts.by_task.get(task["name"])
                if phases and phases.get("Succeeded", 0) < task["minAvailable"]:
                    return "Failed"
        if wanted is not None:
            return "Failed"
        return "Completed" if counts.succeeded >= spec["minAvailable"] else "Failed"
    return PENDING if counts.pending > n_pods - spec["minAvailable"] else RUNNING
