"""proportion: queues share the cluster by weight and lend what they do not use.

The deserved share is computed per resource by filling: every queue gets its part by weight, none
gets more than it requests, and the remainder is distributed again. A job that cannot start, because
its minimum exceeds the cluster or the capability of its queue, makes an unstartable request; the
queue deserves for it only what all other queues leave.

A resource is scarce if the queues together request more than exists. Of other resources each queue
deserves all that it requests; only scarce resources decide which queue must release and which may
reclaim.

Source: kube-batch v0.5, plugins/proportion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stowplan.batch.session import Session, SessionPlugin
from stowplan.batch.session_plugins.drf import max_share
from stowplan.batch.state.capability import least_excess, limits_of
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.nodes import SessionNodes
from stowplan.batch.state.queues import QueueInfo
from stowplan.batch.state.session_state import TaskEventHandlers
from stowplan.batch.state.task_requests import EPSILON, less_equal
from stowplan.framework.deciders.resource_vector import ResourceVector, difference
from stowplan.framework.deciders.tasks import OCCUPYING, TaskStatus


class QueueShare:
    """Deserved, allocated and requested resources of a queue, and its share of the deserved ones.

    unstartable: the part of the request from jobs that cannot start. limits: from the
    capability.
    """

    __slots__ = (
        "allocated",
        "deserved",
        "limits",
        "open_allocated",
        "open_overused",
        "open_share",
        "queue",
        "request",
        "share",
        "unstartable",
    )

    def __init__(self, queue: QueueInfo) -> None:
        self.queue = queue
        self.deserved = ResourceVector()
        self.allocated = ResourceVector()
        self.request = ResourceVector()
        self.unstartable = ResourceVector()
        self.limits = limits_of(queue)
        self.share = 0.0
        self.open_allocated = ResourceVector()
        self.open_share = 0.0
        self.open_overused = False

    def update(self) -> None:
        """Recompute the share."""
        self.share = max_share(self.allocated, self.deserved, self.deserved.names())


class ProportionPlugin(SessionPlugin):
    """Orders queues by share, stops queues that have what they deserve, and selects victims."""

    name = "proportion"

    def __init__(self, arguments: Mapping[str, str]) -> None:
        super().__init__(arguments)
        self.shares: dict[str, QueueShare] = {}
        self._scarce: frozenset[str] = frozenset()

    def on_open(self, session: Session) -> None:
        """Register queue order, overused, victims and event handlers that update the shares."""
        self._session = session
        hooks = session.hooks
        hooks.register("queue_order", self.name, self.queue_order)
        hooks.register("reclaimable", self.name, self.victims, spares=self.spares)
        hooks.register("overused", self.name, self.overused, why=self.why_overused)
        session.state.handlers.append(TaskEventHandlers(self._allocated, self._deallocated))

    def on_start(self, session: Session) -> None:
        """Compute what every queue with jobs has and requests, and distribute the cluster."""
        queues = session.state.queues
        nodes = session.state.nodes
        for job in session.jobs.values():
            held = self.shares.get(job.queue)
            if held is None:
                held = self.shares[job.queue] = QueueShare(queues[job.queue])
            held.allocated.add(job.allocated)
            held.request.add(job.wanted)
            if not session.hooks.job_ready(job) and not (
                can_start(job, nodes) and self._may_start(job)
            ):
                held.unstartable.add(difference(job.wanted, job.allocated)[0])
        for job in session.invalid.values():
            # An invalid job requests nothing more, but its allocation counts for its queue.
            if job.queue in self.shares:
                self.shares[job.queue].allocated.add(job.allocated)
                self.shares[job.queue].request.add(job.allocated)
        self._share_out(nodes.total())
        for held in self.shares.values():
            held.open_allocated = held.allocated.copy()
            held.open_share = held.share
            held.open_overused = self.overused(held.queue)

    # Shares.

    def _share_out(self, total: ResourceVector) -> None:
        """Fill per resource by weight, each queue up to its request and limit; unstartable requests
        come last."""
        shares, weights = self.shares, self._weights()
        for name in total.names():
            limits = {uid: self._limit(held, name) for uid, held in shares.items()}
            parts = fill_by_weight(total.get(name), limits, weights)
            left = max(total.get(name) - sum(parts.values()), 0.0)
            rest = {
                uid: self._limit(held, name, all_of_it=True) - limits[uid]
                for uid, held in shares.items()
            }
            for uid, more in fill_by_weight(left, rest, weights).items():
                _set(shares[uid].deserved, name, parts[uid] + more)
        self._scarce = frozenset(name for name in total.names() if self._is_scarce(name, total))
        for held in self.shares.values():
            held.update()

    def _is_scarce(self, name: str, total: ResourceVector) -> bool:
        """True if queues together request more of a resource than exists, unstartable requests
        aside."""
        wanted = sum(self._limit(held, name) for held in self.shares.values())
        return wanted > total.get(name) + EPSILON

    def _limit(self, held: QueueShare, name: str, *, all_of_it: bool = False) -> float:
        """The most that a queue may deserve. all_of_it: including unstartable requests."""
        wanted = held.request.get(name)
        if not all_of_it:
            wanted -= held.unstartable.get(name)
        return min(wanted, held.limits.get(name, wanted))

    def _may_start(self, job: JobInfo) -> bool:
        """False if the minimum that a job needs to start exceeds its queue's limit."""
        limits = self.shares[job.queue].limits
        return not limits or not least_excess(job, job.allocated, limits)

    def _weights(self) -> dict[str, int]:
        return {uid: held.queue.weight for uid, held in self.shares.items()}

    # Session functions.

    def queue_order(self, first: QueueInfo, second: QueueInfo) -> int:
        """The smaller share goes first."""
        a, b = self.shares[first.name].share, self.shares[second.name].share
        return (a > b) - (a < b)

    def overused(self, queue: QueueInfo) -> bool:
        """True if the queue has what it deserves of every resource."""
        held = self.shares[queue.name]
        return less_equal(held.deserved, held.allocated)

    def why_overused(self, queue: QueueInfo) -> str:
        """Message for the jobs of an overused queue."""
        if queue.weight <= 0:
            return f"queue {queue.name!r} has weight {queue.weight}, so it deserves nothing"
        return f"queue {queue.name!r} already has its deserved share"

    def victims(self, task: TaskInfo, candidates: Sequence[TaskInfo]) -> list[TaskInfo]:
        """Candidates without which their queue still has what it deserves.

        Compared are the scarce resources that a candidate uses; all resources if it uses none that
        is scarce, or the task requests none. No candidate is a victim for a queue that already has
        its share of a scarce resource that the task requests.
        """
        contested = self._contested(task)
        if self._has_its_part(task, contested):
            return []
        left: dict[str, ResourceVector] = {}
        allowed = []
        for candidate in candidates:
            held, have = self._held_and_left(candidate, left)
            running = candidate.ask.running
            if all(
                held.deserved.get(name) < have.get(name) - n + EPSILON
                for name, n in self._counted(running, contested)
            ):
                # Candidates that stay are not counted as evicted.
                have.take(running)
                allowed.append(candidate)
        return allowed

    def _held_and_left(
        self, candidate: TaskInfo, left: dict[str, ResourceVector]
    ) -> tuple[QueueShare, ResourceVector]:
        """The share of the candidate's queue, and what the queue has left of its allocation."""
        queue = self._session.jobs[candidate.job].queue
        held = self.shares[queue]
        if queue not in left:
            left[queue] = held.allocated.copy()
        return held, left[queue]

    def _contested(self, task: TaskInfo) -> list[str]:
        """The scarce resources that a task requests."""
        return [name for name, n in task.ask.running.pairs() if n > 0 and name in self._scarce]

    def _counted(self, amount: ResourceVector, contested: Sequence[str]) -> list[tuple[str, float]]:
        """The resources of an amount to compare: the scarce ones, or all if none is scarce."""
        taken = [(name, n) for name, n in amount.pairs() if n > 0]
        if not contested:
            return taken
        return [(name, n) for name, n in taken if name in self._scarce] or taken

    def _has_its_part(self, task: TaskInfo, contested: Sequence[str]) -> bool:
        """True if the task's queue has what it deserves of a scarce resource that the task
        requests."""
        held = self.shares[self._session.jobs[task.job].queue]
        return any(
            held.deserved.get(name) < held.allocated.get(name) + EPSILON for name in contested
        )

    def spares(self, job: JobInfo) -> bool:
        """True if the job's queue has no more than it deserves of any resource."""
        held = self.shares[job.queue]
        return all(held.allocated.get(n) <= held.deserved.get(n) for n in held.allocated.names())

    def _allocated(self, task: TaskInfo) -> None:
        held = self.shares[self._session.jobs[task.job].queue]
        held.allocated.add(task.ask.running)
        held.update()

    def _deallocated(self, task: TaskInfo) -> None:
        held = self.shares[self._session.jobs[task.job].queue]
        held.allocated.take(task.ask.running)
        held.update()


def can_start(job: JobInfo, nodes: SessionNodes) -> bool:
    """False if the job's allocation plus the minimum request of its missing tasks exceeds all nodes
    together."""
    total = nodes.total()
    if all(n <= total.get(name) for name, n in job.wanted.pairs()):
        return True
    # Pods on nodes that are not ready take nothing from the other nodes.
    taking = [task for status in OCCUPYING for task in job.of(status).values()]
    has = [task.ask.running for task in taking if nodes.has_ready_node(nodes.row(task.node))]
    waiting = [task.ask.running for task in job.of(TaskStatus.PENDING).values()]
    n_missing = max(job.min_available - job.ready_count, 0)
    for name in job.wanted.names():
        least = sorted(ask.get(name) for ask in waiting)[:n_missing]
        if sum(least) > total.get(name) - sum(ask.get(name) for ask in has):
            return False
    return True


def fill_by_weight(
    amount: float, limits: Mapping[str, float], weights: Mapping[str, int]
) -> dict[str, float]:
    """Distribute `amount` by weight, none above its limit; the remainder goes to the others."""
    parts = dict.fromkeys(limits, 0.0)
    open_ = {uid for uid in limits if weights[uid] > 0}
    # In the order in which limits are reached, so that one pass suffices.
    order = sorted(open_, key=lambda uid: (limits[uid] / weights[uid], uid))
    weight = sum(weights[uid] for uid in order)
    for uid in order:
        parts[uid] = min(limits[uid], amount * weights[uid] / weight)
        amount -= parts[uid]
        weight -= weights[uid]
    return parts


def _set(amount: ResourceVector, name: str, value: float) -> None:
    if name == "cpu":
        amount.cpu = value
    elif name == "memory":
        amount.memory = value
    else:
        if amount.scalars is None:
            amount.scalars = {}
        amount.scalars[name] = value
