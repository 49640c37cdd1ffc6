"""What capacity and proportion know of a queue: limits, promises, and what it has.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/capacity and proportion.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.queue_books import QueueBook, sums_by_queue
from stowplan.batch.queue_models.volcano.volcano_amount import UNLIMITED, VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_defects import USED_UP_SCALAR
from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_queue import VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask


class QueueAttributes:
    """Amounts of one queue.

    deserved: promised. deserves_nothing: that is empty. capability, real_capability: limits, the
    second one after what is guaranteed to others. guarantee: kept free for it. inqueue: what
    admitted jobs may still take. elastic: what jobs have above their minimum. ancestors: names, the
    root first. children: by name.
    """

    def __init__(self, queue: VolcanoQueue, *, states_deserved: bool) -> None:
        spec = queue.queue.spec
        self.queue, self.name = queue, queue.name
        self.deserved = VolcanoAmount.of(spec.deserved if states_deserved else {})
        self.guarantee = VolcanoAmount.of(spec.guarantee.resource)
        self.capability = VolcanoAmount.of(spec.capability)
        self.real_capability = VolcanoAmount()
        self.allocated = VolcanoAmount()
        self.request = VolcanoAmount()
        self.inqueue = VolcanoAmount()
        self.elastic = VolcanoAmount()
        self.share = 0.0
        self.deserves_nothing = False
        self.ancestors: tuple[str, ...] = ()
        self.children: dict[str, QueueAttributes] = {}

    def add(self, other: QueueAttributes | QueueBook) -> None:
        """Add what the jobs of this queue, or of one below, have."""
        self.allocated.add(other.allocated)
        self.request.add(other.request)
        self.inqueue.add(other.inqueue)
        self.elastic.add(other.elastic)


class QueuePlugin(VolcanoPlugin):
    """Base of the plugins that share between queues. attributes: by queue name."""

    _session: VolcanoSession
    attributes: dict[str, QueueAttributes]
    knows_queues = True

    def of_task(self, task: VolcanoTask) -> QueueAttributes | None:
        """Attributes of the queue of a task."""
        job = self._session.jobs.get(task.job)
        return None if job is None else self.attributes.get(job.queue)

    def ancestors_of(self, attributes: QueueAttributes) -> list[QueueAttributes]:
        """Attributes of the queues above one, the root first."""
        return [self.attributes[name] for name in attributes.ancestors]

    def update_share(self, attributes: QueueAttributes) -> None:
        """Compute the share of a queue."""
        raise NotImplementedError

    def allocated(self, task: VolcanoTask) -> bool:
        """Count a placed task."""
        attributes = self.of_task(task)
        if attributes is not None:
            for one in (attributes, *self.ancestors_of(attributes)):
                one.allocated.add(task.request)
            self.update_share(attributes)
        return True

    def released(self, task: VolcanoTask) -> None:
        """No longer count a task."""
        attributes = self.of_task(task)
        if attributes is not None:
            for one in (attributes, *self.ancestors_of(attributes)):
                one.allocated.subtract(task.request)
            self.update_share(attributes)

    def admits(self, attributes: QueueAttributes, job: VolcanoSessionJob) -> bool:
        """True if the minimum of a job is within what the queue may have."""
        after = self.after_admission(attributes, job)
        return not after.exceeded_names(attributes.real_capability, job.min_resources)

    def after_admission(self, attributes: QueueAttributes, job: VolcanoSessionJob) -> VolcanoAmount:
        """What a queue has and has promised once a job is admitted."""
        after = job.min_resources.copy().add(attributes.allocated).add(attributes.inqueue)
        return after.subtract(attributes.elastic)


def attributes_of_jobs(
    session: VolcanoSession, *, states_deserved: bool
) -> dict[str, QueueAttributes]:
    """Attributes of the queues that have a job."""
    found: dict[str, QueueAttributes] = {}
    for name, book in sums_by_queue(session.jobs.values(), session.cluster.books).items():
        found[name] = QueueAttributes(session.queues[name], states_deserved=states_deserved)
        found[name].add(book)
    return found


def real_capability(session: VolcanoSession, attributes: QueueAttributes) -> VolcanoAmount:
    """What a queue may have at most: its capability, and what is not guaranteed to others."""
    guaranteed = session.guaranteed
    names_all = USED_UP_SCALAR in session.options.mends
    result = session.total.rest(guaranteed, names_all=names_all).add(attributes.guarantee)
    if attributes.queue.queue.spec.capability:
        limit = attributes.capability
        limit.cpu = limit.cpu if limit.cpu > 0 else UNLIMITED
        limit.memory = limit.memory if limit.memory > 0 else UNLIMITED
        result.limit(limit, absent_is_unlimited=True)
    return result
