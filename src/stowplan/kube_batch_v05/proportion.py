"""proportion: queues share the cluster by weight.

A queue is met when it requests less than its part of every resource. Where no resource but cpu and
memory exists this is never so, and what a queue does not want is not given to others.

Source: kube-batch v0.5, plugins/proportion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stowplan.framework.deciders.resource_vector import (
    ResourceVector,
    difference,
    minimum,
    share_of,
)
from stowplan.kube_batch_v05.amounts import is_empty, less, less_equal, subtract
from stowplan.kube_batch_v05.jobs import KubeBatchTask
from stowplan.kube_batch_v05.session import KubeBatchSession
from stowplan.kube_batch_v05.session_cache import KubeBatchQueue


class KubeBatchQueueShare:
    """Deserved, allocated and requested resources of a queue, and the largest ratio of allocated to
    deserved ones."""

    def __init__(self, queue: KubeBatchQueue) -> None:
        self.queue = queue
        self.deserved = ResourceVector()
        self.allocated = ResourceVector()
        self.request = ResourceVector()
        self.share = 0.0
        self.open_allocated = ResourceVector()
        self.open_share = 0.0
        self.open_overused = False

    def update(self) -> None:
        """Recompute the share."""
        have, due = self.allocated, self.deserved
        self.share = max(0.0, *(share_of(have.get(name), due.get(name)) for name in due.names()))

    @property
    def is_overused(self) -> bool:
        """True if the queue has what it deserves of every resource."""
        return less_equal(self.deserved, self.allocated)


class KubeBatchProportion:
    """Orders queues by share, stops those that have what they deserve, and selects victims."""

    name = "proportion"

    def __init__(self, arguments: Mapping[str, str]) -> None:
        """arguments: ignored."""
        self.shares: dict[str, KubeBatchQueueShare] = {}

    def on_open(self, session: KubeBatchSession) -> None:
        """Compute the shares of queues with jobs and register functions and handlers."""
        self._session = session
        for job in session.jobs.values():
            if job.queue not in self.shares:
                self.shares[job.queue] = KubeBatchQueueShare(session.queues[job.queue])
            self.shares[job.queue].allocated.add(job.allocated)
            self.shares[job.queue].request.add(job.wanted)
        total = ResourceVector()
        for node in session.nodes.values():
            total.add(node.allocatable)
        self._share_out(total)
        for held in self.shares.values():
            held.open_allocated = held.allocated.copy()
            held.open_share, held.open_overused = held.share, held.is_overused
        session.functions.register(
            self.name,
            queue_order=self._queue_order,
            reclaimable=self._victims,
            overused=lambda queue: self.shares[queue.name].is_overused,
        )
        session.handlers.append((self._allocated, self._deallocated))

    def on_close(self, session: KubeBatchSession) -> None:
        """Nothing to do."""

    def _share_out(self, remaining: ResourceVector) -> None:
        met: set[str] = set()
        while True:
            weight = sum(h.queue.weight for name, h in self.shares.items() if name not in met)
            if weight == 0:
                return
            given, taken_back = ResourceVector(), ResourceVector()
            for name, held in self.shares.items():
                if name in met:
                    continue
                before = held.deserved.copy()
                held.deserved.add(remaining.copy().times(held.queue.weight / weight))
                if less(held.request, held.deserved):
                    held.deserved = minimum(held.deserved, held.request)
                    met.add(name)
                held.update()
                above, below = difference(held.deserved, before)
                given.add(above)
                taken_back.add(below)
            subtract(remaining, given).add(taken_back)
            if is_empty(remaining):
                return

    def _queue_order(self, first: KubeBatchQueue, second: KubeBatchQueue) -> int:
        a, b = self.shares[first.name].share, self.shares[second.name].share
        return (a > b) - (a < b)

    def _victims(
        self, task: KubeBatchTask, candidates: Sequence[KubeBatchTask]
    ) -> list[KubeBatchTask]:
        """Candidates without which their queue still has what it deserves of every resource; those
        that stay count as evicted too."""
        left: dict[str, ResourceVector] = {}
        allowed = []
        for one in candidates:
            queue = self._session.jobs[one.job].queue
            if queue not in left:
                left[queue] = self.shares[queue].allocated.copy()
            if less(left[queue], one.ask.running):
                continue
            subtract(left[queue], one.ask.running)
            if less_equal(self.shares[queue].deserved, left[queue]):
                allowed.append(one)
        return allowed

    def _allocated(self, task: KubeBatchTask) -> None:
        held = self.shares[self._session.jobs[task.job].queue]
        held.allocated.add(task.ask.running)
        held.update()

    def _deallocated(self, task: KubeBatchTask) -> None:
        held = self.shares[self._session.jobs[task.job].queue]
        subtract(held.allocated, task.ask.running)
        held.update()
