"""overcommit: jobs are admitted for up to a multiple of the cluster.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/overcommit/overcommit.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_hooks import PERMIT, REJECT, VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_options import number
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import INQUEUE_PHASE, VolcanoSessionJob

FACTOR = 1.2


class Overcommit(VolcanoPlugin):
    """The gate of the whole cluster."""

    name = "overcommit"

    def open(self, session: VolcanoSession) -> None:
        """Add up what admitted jobs may still take."""
        factor = number(self.arguments, "overcommit-factor", FACTOR)
        if factor < 1.0:
            factor = FACTOR
        self._idle = session.total.copy().multiply(factor)
        for node in session.node_list:
            self._idle.subtract(node.used)
        self._inqueue = VolcanoAmount()
        for job in session.jobs.values():
            if job.phase == INQUEUE_PHASE and job.states_min_resources:
                self._inqueue.add(job.without_gated(job.min_resources))
            elif job.states_min_resources and job.amounts.reserved is not None:
                self._inqueue.add(job.amounts.reserved)

    def room(self) -> VolcanoAmount:
        """What jobs that are still to be admitted may take; a new amount."""
        return self._idle.copy().subtract(self._inqueue)

    def job_enqueueable(self, job: VolcanoSessionJob) -> int:
        """Reject a job for which there is no room."""
        if not job.states_min_resources:
            return PERMIT
        least = job.min_resources
        after = self._inqueue.copy().add(least)
        return REJECT if after.exceeded_names(self._idle, least) else PERMIT

    def job_enqueued(self, job: VolcanoSessionJob) -> None:
        """Count an admitted job."""
        if job.states_min_resources:
            self._inqueue.add(job.without_gated(job.min_resources))
