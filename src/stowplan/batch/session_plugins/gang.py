"""gang: a job's pods start together, at least `minMember` of them, and gangs are not broken up.

Source: kube-batch v0.5, plugins/gang.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.batch.hook_contracts import ValidateResult
from stowplan.batch.session import NOT_ENOUGH_TASKS, Session, SessionPlugin
from stowplan.batch.session_close import job_fit_error
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.framework.deciders.tasks import VALID, TaskStatus

NOT_ENOUGH_RESOURCES = "NotEnoughResources"


class GangPlugin(SessionPlugin):
    """Readiness, order by readiness, and protection of running gangs."""

    name = "gang"

    def on_open(self, session: Session) -> None:
        """Register the functions that depend on task counts."""
        hooks = session.hooks
        self._jobs = session.jobs
        hooks.register("job_valid", self.name, self.job_valid)
        hooks.register("preemptable", self.name, self.victims, veto=True, spares=self.spares)
        hooks.register("reclaimable", self.name, self.victims, veto=True, spares=self.spares)
        hooks.register("job_order", self.name, self.job_order)
        hooks.register("job_ready", self.name, lambda job: job.is_ready)
        hooks.register("job_pipelined", self.name, lambda job: job.is_pipelined)

    def job_valid(self, job: JobInfo) -> ValidateResult | None:
        """A job with too few pods cannot start, whatever resources are free."""
        if job.ready_count >= job.min_available:
            return None
        valid = job.count(VALID)
        if valid >= job.min_available:
            return None
        text = (
            f"Not enough valid tasks for gang-scheduling, valid: {valid}, min: {job.min_available}"
        )
        n_gated = len(job.of(TaskStatus.GATED))
        if n_gated:
            text += f", waiting for their scheduling gates: {n_gated}"
        return ValidateResult(NOT_ENOUGH_TASKS, text)

    def victims(self, task: TaskInfo, candidates: Sequence[TaskInfo]) -> list[TaskInfo]:
        """Candidates whose gang stays complete without them; a gang of one cannot be broken."""
        left: dict[str, int] = {}
        allowed = []
        for candidate in candidates:
            job = self._jobs[candidate.job]
            ready = left.get(job.uid, job.ready_count)
            if job.min_available <= ready - 1 or job.min_available == 1:
                allowed.append(candidate)
                left[job.uid] = ready - 1
        return allowed

    def spares(self, job: JobInfo) -> bool:
        """True if no task of the job can be evicted without breaking the gang."""
        return not (job.min_available <= job.ready_count - 1 or job.min_available == 1)

    def job_order(self, first: JobInfo, second: JobInfo) -> int:
        """Jobs that are not ready go first."""
        return int(first.is_ready) - int(second.is_ready)

    def on_close(self, session: Session) -> None:
        """Set the Unschedulable condition of jobs that are not ready."""
        for job in session.jobs.values():
            ready = job.ready_count
            if ready < job.min_available:
                text = (
                    f"{job.min_available - ready}/{len(job.tasks)} tasks in gang unschedulable: "
                    f"{job_fit_error(job)}"
                )
                session.session_close.set_condition(job, NOT_ENOUGH_RESOURCES, text)
