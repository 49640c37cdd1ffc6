"""capacity: queues have what they deserve, within limits, in a tree or not.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/capacity/capacity.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stowplan.batch.queue_models.volcano.plugins.shares.capacity_tree import (
    ancestors_within,
    common_level,
    queue_tree,
)
from stowplan.batch.queue_models.volcano.plugins.shares.device_quota import DeviceQuotas
from stowplan.batch.queue_models.volcano.plugins.shares.queue_attributes import (
    QueueAttributes,
    QueuePlugin,
    attributes_of_jobs,
    real_capability,
)
from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount, maximum, share_of
from stowplan.batch.queue_models.volcano.volcano_defects import FULL_ANCESTOR
from stowplan.batch.queue_models.volcano.volcano_hooks import PERMIT, REJECT
from stowplan.batch.queue_models.volcano.volcano_options import boolean, integer
from stowplan.batch.queue_models.volcano.volcano_queue import ROOT, VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask

RECLAIM_ACTIONS = frozenset({"reclaim", "gangreclaim"})
RECLAIM_LEVEL = "ancestorReclaimLevel"
DEVICES = "capacity.DynamicResourceAllocationEnable"
DEVICE_CAPACITY = "capacity.DRAConsumableCapacityEnable"


class VolcanoCapacity(QueuePlugin):
    """Promises and limits of queues. problem: why nothing can be decided, "" for none."""

    name = "capacity"

    def open(self, session: VolcanoSession) -> None:
        """Compute the attributes of queues."""
        self._session = session
        self._level = max(integer(self.arguments, RECLAIM_LEVEL, 0), 0)
        self.is_tree = session.options.is_hierarchical(self.name)
        self.problem = ""
        if self.is_tree:
            self.attributes, self.problem = queue_tree(session)
        else:
            self.attributes = attributes_of_jobs(session, states_deserved=True)
            for attributes in self.attributes.values():
                attributes.real_capability = real_capability(session, attributes)
                attributes.deserved.limit(attributes.real_capability, absent_is_unlimited=True)
                attributes.deserved = maximum(attributes.deserved, attributes.guarantee)
            self.silent.add("victim_queue_order")
        if self.problem:
            self.silent |= {"queue_order", "victim_queue_order"}
        else:
            for attributes in self.attributes.values():
                attributes.deserves_nothing = attributes.deserved.is_empty
                self.update_share(attributes)
        self._quotas = DeviceQuotas(
            session,
            self.attributes,
            is_on=boolean(self.arguments, DEVICES, default=True),
            with_capacity=boolean(self.arguments, DEVICE_CAPACITY, default=True),
        )

    def update_share(self, attributes: QueueAttributes) -> None:
        """The largest share of what is deserved; 1 if nothing is."""
        if attributes.deserves_nothing:
            attributes.share = 1.0
            return
        deserved, given = attributes.deserved, attributes.allocated
        shares = [share_of(given.get(name), deserved.get(name)) for name in deserved.names()]
        attributes.share = max(shares, default=0.0)

    def _path(self, queue: str) -> list[QueueAttributes]:
        """A queue and those above it, the root first."""
        attributes = self.attributes[queue]
        return [*self.ancestors_of(attributes), attributes]

    # Order.

    def queue_order(self, left: VolcanoQueue, right: VolcanoQueue) -> int:
        """By priority, then by share: of leaves, that of the queues above them that differ."""
        if left.priority != right.priority:
            return right.priority - left.priority
        first, second = self.attributes[left.name], self.attributes[right.name]
        if not self.is_tree:
            return _compare_shares(first, second)
        if bool(first.children) != bool(second.children):
            return 1 if first.children else -1
        if first.children:
            return _compare_shares(first, second)
        if first.ancestors == second.ancestors:
            return _compare_shares(first, second)
        level = common_level(first, second) + 1
        pair = [
            self.attributes[one.ancestors[level]] if level < len(one.ancestors) else one
            for one in (first, second)
        ]
        return _compare_shares(*pair)

    def victim_queue_order(
        self, left: VolcanoQueue, right: VolcanoQueue, reclaimer: VolcanoQueue
    ) -> int:
        """Queues with a longer common path with the reclaimer come first."""
        own = self.attributes[reclaimer.name]
        levels = [common_level(self.attributes[q.name], own) for q in (left, right)]
        return levels[1] - levels[0]

    # Room.

    def allocatable(self, queue: VolcanoQueue, task: VolcanoTask) -> bool:
        """True if the task is within the limits of the queue and of those above it."""
        if not queue.is_open or not self._takes_jobs(queue.name):
            return False
        return self._has_room(queue, task, ())

    def _takes_jobs(self, queue: str) -> bool:
        if self.problem:
            return False
        return not (self.is_tree and self.attributes[queue].children)

    def _has_room(
        self, queue: VolcanoQueue, task: VolcanoTask, gone: Sequence[VolcanoTask]
    ) -> bool:
        for attributes in reversed(self._path(queue.name)):
            if not self._quotas.allow(attributes.name, task):
                return False
            if not gone:
                if not attributes.allocated.leaves_room(attributes.real_capability, task.request):
                    return False
                continue
            after = attributes.allocated.copy().add(task.request)
            for other in gone:
                owner = self.of_task(other)
                if owner is not None and attributes.name in (owner.name, *owner.ancestors):
                    after.subtract(other.request)
            if after.exceeded_names(attributes.real_capability, task.request):
                return False
        return True

    def simulate_room(
        self, queue: VolcanoQueue, task: VolcanoTask, gone: Sequence[VolcanoTask]
    ) -> bool:
        """True if the task is within the limits once some tasks are gone."""
        return self._takes_jobs(queue.name) and self._has_room(queue, task, gone)

    def job_enqueueable(self, job: VolcanoSessionJob) -> int:
        """Reject a job that is not within the limits of its queue and of those above it."""
        if not self._takes_jobs(job.queue) or not self._session.queues[job.queue].is_open:
            return REJECT
        if not job.states_min_resources and not self._quotas.concern(job):
            return PERMIT
        for attributes in reversed(self._path(job.queue)):
            is_allowed = self._quotas.admit(attributes.name, job)
            if not is_allowed:
                return REJECT
            if not self.admits(attributes, job) and not self.gets_back(attributes, job):
                return REJECT
        return PERMIT

    def gets_back(self, above: QueueAttributes, job: VolcanoSessionJob) -> bool:
        """True if a queue above a job's is full only of what others below it borrow, the job stays
        within what its own queue deserves, and an action reclaims."""
        options = self._session.options
        if FULL_ANCESTOR not in options.mends or above.name == job.queue:
            return False
        if RECLAIM_ACTIONS.isdisjoint(options.actions):
            return False
        own, least = self.attributes[job.queue], job.min_resources
        after = self.after_admission(above, job)
        wanted = self.after_admission(own, job)
        short = after.exceeded_names(above.real_capability, least)
        return all(
            wanted.get(name) <= own.deserved.get(name)
            and after.get(name) - self._borrowed(above, own, name)
            <= above.real_capability.get(name)
            for name in short or ()
        )

    def _borrowed(self, above: QueueAttributes, own: QueueAttributes, resource: str) -> float:
        """What others than `own` below a queue have of a resource beyond what they deserve, where
        that may be reclaimed."""
        return sum(
            max(one.allocated.get(resource) - one.deserved.get(resource), 0.0)
            for one in self.attributes.values()
            if above.name in one.ancestors
            and one is not own
            and not one.children
            and one.queue.is_reclaimable
        )

    def job_enqueued(self, job: VolcanoSessionJob) -> None:
        """Count an admitted job."""
        if job.queue not in self.attributes:
            return
        if not job.states_min_resources and not self._quotas.concern(job):
            return
        least = job.without_gated(job.min_resources)
        for attributes in self._path(job.queue):
            attributes.inqueue.add(least)
            self._quotas.admitted(attributes.name, job)

    def allocated(self, task: VolcanoTask) -> bool:
        """Count a placed task."""
        self._quotas.count(task, 1)
        return super().allocated(task)

    def released(self, task: VolcanoTask) -> None:
        """No longer count a task."""
        self._quotas.count(task, -1)
        super().released(task)

    # Reclaim.

    def preemptive(self, queue: VolcanoQueue, tasks: Sequence[VolcanoTask]) -> bool:
        """True if the queue may reclaim for the tasks: it is below what it deserves in some
        requested resource, or a queue above it is, within the level."""
        if self.problem or not queue.is_open:
            return False
        attributes = self.attributes[queue.name]
        request = VolcanoAmount()
        for task in tasks:
            request.add(task.request)
        after = attributes.allocated.copy().add(request)
        if after.exceeded_names(attributes.real_capability, request):
            return False
        if after.fits_in_some(attributes.deserved, request):
            return True
        for name in self._levels(attributes).values():
            above = self.attributes[name]
            after = above.allocated.copy().add(request)
            if name != ROOT and after.fits_in_some(above.deserved, request):
                return True
        return False

    def _levels(self, attributes: QueueAttributes) -> Mapping[int, str]:
        """Queues above one that count for reclaim."""
        return ancestors_within(attributes, self._level) if self.is_tree else {}

    def reclaimable(self, task: VolcanoTask, others: list[VolcanoTask]) -> list[VolcanoTask]:
        """Tasks of queues with more than they deserve, in the order of victims."""
        own = self.of_task(task)
        if self.problem or own is None:
            return []
        left: dict[str, VolcanoAmount] = {}
        victims = []
        heap = self._session.victim_heap(others, task)
        while heap:
            other = heap.pop()
            attributes = self.of_task(other)
            if attributes is None or not other.request.shares_names(task.request, with_pods=False):
                continue
            given = left.setdefault(attributes.name, attributes.allocated.copy())
            if not _keeps_guarantee(attributes, given, other):
                continue
            if not self._exceeds(task, own, other, attributes, given):
                continue
            above = self._ancestors_that_exceed(own, other, attributes, left)
            if above is None:
                continue
            for amount in (given, *above):
                amount.subtract(other.request)
            victims.append(other)
        return victims

    def _exceeds(
        self,
        task: VolcanoTask,
        own: QueueAttributes,
        other: VolcanoTask,
        attributes: QueueAttributes,
        given: VolcanoAmount,
    ) -> bool:
        """True if the queue of a candidate has more than it deserves."""
        if other.request.shares_names(attributes.deserved):
            return given.exceeds_in_some(attributes.deserved, other.request)
        # It deserves nothing of this; queues of one parent that deserve nothing spare each other.
        mine, its = (set(self._levels(one).values()) - {ROOT} for one in (own, attributes))
        return not (mine & its) or task.request.shares_names(own.deserved)

    def _ancestors_that_exceed(
        self,
        own: QueueAttributes,
        other: VolcanoTask,
        attributes: QueueAttributes,
        left: dict[str, VolcanoAmount],
    ) -> list[VolcanoAmount] | None:
        """What queues above a candidate's have, without those above the reclaimer too; None if
        one of them does not have more than it deserves."""
        mine, found = self._levels(own), []
        for level, name in self._levels(attributes).items():
            if name == ROOT or mine.get(level) == name:
                continue
            above = self.attributes[name]
            given = left.setdefault(name, above.allocated.copy())
            found.append(given)
            is_relevant = other.request.shares_names(above.deserved)
            if is_relevant and not given.exceeds_in_some(above.deserved, other.request):
                return None
        return found

    def evictable(
        self, job: VolcanoSessionJob, others: list[VolcanoTask], reclaims: bool
    ) -> list[VolcanoTask]:
        """Tasks of queues with more than they deserve, in the order given; in a queue all."""
        if not reclaims:
            return others
        if self.problem:
            return []
        left: dict[str, VolcanoAmount] = {}
        victims = []
        for other in others:
            attributes = self.attributes[self._session.jobs[other.job].queue]
            given = left.setdefault(attributes.name, attributes.allocated.copy())
            if not _keeps_guarantee(attributes, given, other):
                continue
            deserved = attributes.deserved
            if not other.request.shares_names(deserved) or given.exceeds_in_some(
                deserved, other.request
            ):
                given.subtract(other.request)
                victims.append(other)
        return victims


def _keeps_guarantee(attributes: QueueAttributes, given: VolcanoAmount, task: VolcanoTask) -> bool:
    """True if the queue has what is guaranteed to it also without a task."""
    return attributes.guarantee.fits(given.copy().subtract(task.request))


def _compare_shares(left: QueueAttributes, right: QueueAttributes) -> int:
    """The smaller share comes first; of equal ones a queue that deserves something."""
    if left.share != right.share:
        return -1 if left.share < right.share else 1
    return left.deserves_nothing - right.deserves_nothing
