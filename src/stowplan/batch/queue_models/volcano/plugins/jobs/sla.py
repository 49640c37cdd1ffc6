"""sla: jobs that have waited too long are admitted.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/sla/sla.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.volcano_hooks import ABSTAIN, PERMIT, VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import (
    VolcanoSessionJob,
    waiting_time_s,
)


class Sla(VolcanoPlugin):
    """Waiting times, of the job or of all."""

    name = "sla"

    def open(self, session: VolcanoSession) -> None:
        """Read the waiting time."""
        self._now = session.cluster.now
        self._default = waiting_time_s(self.arguments.get("sla-waiting-time"))

    def _deadline(self, job: VolcanoSessionJob) -> float | None:
        waiting = self._default if job.waiting_time_s is None else job.waiting_time_s
        return None if waiting is None else job.created + waiting

    def job_order(self, left: VolcanoSessionJob, right: VolcanoSessionJob) -> int:
        """By deadline; jobs without one come last."""
        first, second = self._deadline(left), self._deadline(right)
        if first is None or second is None:
            return (first is None) - (second is None)
        return (first > second) - (first < second)

    def job_key(self, job: VolcanoSessionJob) -> tuple[bool, float]:
        """See `job_order`."""
        deadline = self._deadline(job)
        return deadline is None, deadline or 0.0

    def job_enqueueable(self, job: VolcanoSessionJob) -> int:
        """Permit after the deadline."""
        deadline = self._deadline(job)
        return ABSTAIN if deadline is None or self._now < deadline else PERMIT

    job_pipelined = job_enqueueable
