"""gang: a job runs with at least minMember pods, or not at all.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/gang/gang.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.volcano_hooks import PERMIT, REJECT, VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob, VolcanoSubJob
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask


class VolcanoGang(VolcanoPlugin):
    """Minimum numbers of pods, by job, role and sub-group."""

    name = "gang"

    def open(self, session: VolcanoSession) -> None:
        """Keep the session."""
        self._jobs = session.jobs

    def job_valid(self, job: VolcanoSessionJob) -> str:
        """Reason why the job can never be placed as it is, "" for none."""
        return job.invalidity()

    def preemptable(self, task: VolcanoTask, others: list[VolcanoTask]) -> list[VolcanoTask]:
        """Tasks that their jobs do not need."""
        spare: dict[str, int] = {}
        victims = []
        for other in others:
            job = self._jobs.get(other.job)
            if job is None:
                continue
            left = spare.setdefault(job.uid, job.n_ready - job.min_available)
            if left > 0:
                spare[job.uid] = left - 1
                victims.append(other)
        return victims

    reclaimable = preemptable

    def evictable(
        self, job: VolcanoSessionJob, others: list[VolcanoTask], reclaims: bool
    ) -> list[VolcanoTask]:
        """All, as bundles know gangs."""
        return others

    def job_order(self, left: VolcanoSessionJob, right: VolcanoSessionJob) -> int:
        """Jobs that are not ready come first."""
        return left.is_ready - right.is_ready

    def job_key(self, job: VolcanoSessionJob) -> bool:
        """See `job_order`."""
        return job.is_ready

    def sub_job_order(self, left: VolcanoSubJob, right: VolcanoSubJob) -> int:
        """Sub-groups that are not ready come first."""
        return left.is_ready - right.is_ready

    def job_ready(self, job: VolcanoSessionJob) -> bool:
        """True if enough is placed."""
        return job.roles_are_ready and job.sub_groups_are_ready and job.is_ready

    def sub_job_ready(self, sub_job: VolcanoSubJob) -> bool:
        """True if enough is placed."""
        return sub_job.is_ready

    def job_pipelined(self, job: VolcanoSessionJob) -> int:
        """Permit if enough is placed or waits."""
        is_met = job.roles_are_pipelined and job.sub_groups_are_pipelined and job.is_pipelined
        return PERMIT if is_met else REJECT

    def sub_job_pipelined(self, sub_job: VolcanoSubJob) -> int:
        """Permit if enough is placed or waits."""
        return PERMIT if sub_job.is_pipelined else REJECT

    def job_starving(self, job: VolcanoSessionJob) -> bool:
        """True if too few are placed or wait."""
        return job.is_starving
