"""Phases of a Volcano Job: what events do by its policies, and which phase follows.

Source: volcano master of 2026-08-20, pkg/controllers/job/state, job_controller_util.go
(applyPolicies).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stowplan.objects.encoding.tree import Tree

SYNC, RESTART_JOB, ABORT, COMPLETE, TERMINATE = (
    "SyncJob", "RestartJob", "AbortJob", "CompleteJob", "TerminateJob",
)  # fmt: skip
RESTART_TASK, RESTART_POD, RESTART_PARTITION = "RestartTask", "RestartPod", "RestartPartition"
TARGETED = frozenset({RESTART_TASK, RESTART_POD, RESTART_PARTITION})

POD_FAILED, POD_EVICTED, TASK_COMPLETED, JOB_UNKNOWN, ANY = (
    "PodFailed", "PodEvicted", "TaskCompleted", "Unknown", "*",
)  # fmt: skip

PENDING, RUNNING, RESTARTING = "Pending", "Running", "Restarting"
ABORTING, COMPLETING, TERMINATING = "Aborting", "Completing", "Terminating"
ENDED = frozenset({"Aborted", "Completed", "Terminated", "Failed"})

KILLS = {
    RESTART_JOB: RESTARTING,
    ABORT: ABORTING,
    COMPLETE: COMPLETING,
    TERMINATE: TERMINATING,
}
"""Action that deletes pods -> phase."""
ENDS = {ABORTING: "Aborted", COMPLETING: "Completed", TERMINATING: "Terminated"}
"""Phase -> the one that follows once no pod is alive."""


class JobEvent(msgspec.Struct, frozen=True):
    """What happened to a pod or a task. exit_code: of a failed container, 0 for none."""

    event: str
    task: str
    pod: str = ""
    exit_code: int = 0


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
        code = policy.get("exitCode")
        if by_event or (code is not None and code == event.exit_code):
            action = str(policy.get("action") or SYNC)
            return JobAction(action, event, _seconds(policy.get("timeout")))
    return None


def _seconds(text: str | None) -> float:
    """A duration of hours, minutes and seconds, such as 1h or 30s; 0 for none."""
    total, number = 0.0, ""
    for sign in text or "":
        if sign.isdigit() or sign == ".":
            number += sign
        else:
            total += float(number or 0) * {"h": 3600.0, "m": 60.0, "s": 1.0}.get(sign, 0.0)
            number = ""
    return total


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
