"""proportion: queues share the cluster by weight.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/proportion/proportion.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.batch.queue_models.volcano.plugins.shares.queue_attributes import (
    QueueAttributes,
    QueuePlugin,
    attributes_of_jobs,
    real_capability,
)
from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount, maximum, share_of
from stowplan.batch.queue_models.volcano.volcano_hooks import PERMIT, REJECT
from stowplan.batch.queue_models.volcano.volcano_queue import VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask


class VolcanoProportion(QueuePlugin):
    """Deserved amounts by weight, up to what is requested."""

    name = "proportion"

    def open(self, session: VolcanoSession) -> None:
        """Divide the cluster."""
        self._session = session
        self.attributes = attributes_of_jobs(session, states_deserved=False)
        for attributes in self.attributes.values():
            attributes.real_capability = real_capability(session, attributes)
        self._divide(session.total.copy())

    def _divide(self, remaining: VolcanoAmount) -> None:
        """Deserved amounts: in rounds, queues that do not have what they request share the rest."""
        open_queues = dict(self.attributes)
        while True:
            weight = sum(attributes.queue.weight for attributes in open_queues.values())
            if weight == 0:
                return
            before = remaining
            increased, decreased = VolcanoAmount(), VolcanoAmount()
            for name, attributes in list(open_queues.items()):
                old = attributes.deserved
                share = attributes.queue.weight / weight
                new = old.copy().add(before.copy().multiply(share))
                new.limit(attributes.real_capability, absent_is_unlimited=True)
                new.limit(attributes.request, absent_is_unlimited=False)
                attributes.deserved = new = maximum(new, attributes.guarantee)
                if attributes.request.fits(new) or new.equals(old):
                    del open_queues[name]
                above, below = new.difference(old)
                increased.add(above)
                decreased.add(below)
                self.update_share(attributes)
            remaining = before.copy().add(decreased).above(increased)
            if remaining.is_empty or remaining.equals(before):
                return

    def update_share(self, attributes: QueueAttributes) -> None:
        """The largest share of what is deserved."""
        deserved, given = attributes.deserved, attributes.allocated
        shares = (share_of(given.get(name), deserved.get(name)) for name in deserved.names())
        attributes.share = max(shares, default=0.0)

    def queue_order(self, left: VolcanoQueue, right: VolcanoQueue) -> int:
        """By priority, then by share."""
        if left.priority != right.priority:
            return right.priority - left.priority
        first, second = self.attributes[left.name].share, self.attributes[right.name].share
        return (first > second) - (first < second)

    def reclaimable(self, task: VolcanoTask, others: list[VolcanoTask]) -> list[VolcanoTask]:
        """Tasks of queues that have more than they deserve."""
        left: dict[str, VolcanoAmount] = {}
        victims = []
        for other in others:
            attributes = self.of_task(other)
            if attributes is None:
                continue
            given = left.setdefault(attributes.name, attributes.allocated.copy())
            if not given.fits(attributes.deserved):
                given.subtract(other.request)
                victims.append(other)
        return victims

    def overused(self, queue: VolcanoQueue) -> bool:
        """True if the queue has all that it deserves."""
        attributes = self.attributes[queue.name]
        return attributes.deserved.fits(attributes.allocated)

    def allocatable(self, queue: VolcanoQueue, task: VolcanoTask) -> bool:
        """True if the task is within what the queue deserves."""
        return self.preemptive(queue, [task])

    def preemptive(self, queue: VolcanoQueue, tasks: Sequence[VolcanoTask]) -> bool:
        """True if the tasks are within what the queue deserves."""
        return queue.is_open and self._has_room(queue, tasks, ())

    def _has_room(
        self, queue: VolcanoQueue, tasks: Sequence[VolcanoTask], gone: Sequence[VolcanoTask]
    ) -> bool:
        attributes = self.attributes[queue.name]
        request = VolcanoAmount()
        for task in tasks:
            request.add(task.request)
        after = attributes.allocated.copy().add(request)
        for task in gone:
            if self.of_task(task) is attributes:
                after.subtract(task.request)
        return not after.exceeded_names(attributes.deserved, request)

    def simulate_room(
        self, queue: VolcanoQueue, task: VolcanoTask, gone: Sequence[VolcanoTask]
    ) -> bool:
        """True if the task is within what the queue deserves once some tasks are gone."""
        return self._has_room(queue, [task], gone)

    def job_enqueueable(self, job: VolcanoSessionJob) -> int:
        """Reject a job for which the queue has no room."""
        if not self._session.queues[job.queue].is_open:
            return REJECT
        if not job.states_min_resources:
            return PERMIT
        return PERMIT if self.admits(self.attributes[job.queue], job) else REJECT

    def job_enqueued(self, job: VolcanoSessionJob) -> None:
        """Count an admitted job."""
        if job.states_min_resources and job.queue in self.attributes:
            self.attributes[job.queue].inqueue.add(job.without_gated(job.min_resources))
