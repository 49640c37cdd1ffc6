"""drf: jobs, and queues in a tree, with smaller dominant shares come first.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/drf/drf.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.plugins.shares.hierarchical_shares import (
    ShareTree,
    dominant_share,
)
from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_queue import VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask

SHARE_DELTA = 0.000001
"""Shares that differ by no more are equal where a job preempts another."""


class VolcanoDrf(VolcanoPlugin):
    """Dominant shares of jobs."""

    name = "drf"
    knows_queues = True

    def open(self, session: VolcanoSession) -> None:
        """Compute the shares of jobs."""
        self._session = session
        self._amounts: dict[str, VolcanoAmount] = {}
        # Jobs whose amount is the plugin's own: those of which something was placed or evicted.
        self._changed: set[str] = set()
        self._shares: dict[str, float] = {}
        self._tree: ShareTree | None = None
        if session.options.is_hierarchical(self.name):
            self._tree = ShareTree(session.total)
        else:
            self.silent |= {"queue_order", "reclaimable"}
        for job in session.jobs.values():
            amount = self._amounts[job.uid] = job.amounts.allocated
            if self._tree is not None:
                self._tree.allocated.add(amount)
                self._update(self._tree, job)

    @property
    def shares(self) -> dict[str, float]:
        """Job -> its share."""
        return {uid: self._share(uid) for uid in self._amounts}

    def _share(self, uid: str) -> float:
        """Share of a job; computed when it is asked for."""
        found = self._shares.get(uid)
        if found is None:
            found = self._shares[uid] = dominant_share(self._amounts[uid], self._session.total)
        return found

    def _update(self, tree: ShareTree, job: VolcanoSessionJob) -> None:
        tree.put(self._session.queues[job.queue], job, self._amounts[job.uid])

    def job_order(self, left: VolcanoSessionJob, right: VolcanoSessionJob) -> int:
        """By share."""
        first, second = self._share(left.uid), self._share(right.uid)
        return (first > second) - (first < second)

    def job_key(self, job: VolcanoSessionJob) -> float:
        """See `job_order`."""
        return self._share(job.uid)

    def queue_order(self, left: VolcanoQueue, right: VolcanoQueue) -> int:
        """By the shares in the tree."""
        assert self._tree is not None
        found = self._tree.compare(left, right)
        return (found > 0) - (found < 0)

    def preemptable(self, task: VolcanoTask, others: list[VolcanoTask]) -> list[VolcanoTask]:
        """Tasks of jobs that keep a larger share than the preemptor would have."""
        own = self._amounts.get(task.job)
        if own is None:
            return []
        total = self._session.total
        share = dominant_share(own.copy().add(task.request), total)
        left: dict[str, VolcanoAmount] = {}
        victims = []
        for other in others:
            amount = self._amounts.get(other.job)
            if amount is None:
                continue
            rest = left.setdefault(other.job, amount.copy()).subtract(other.request)
            its = dominant_share(rest, total)
            if share < its or abs(share - its) <= SHARE_DELTA:
                victims.append(other)
        return victims

    def reclaimable(self, task: VolcanoTask, others: list[VolcanoTask]) -> list[VolcanoTask]:
        """Tasks whose queue still comes after the reclaimer's without them."""
        session = self._session
        own = session.jobs.get(task.job)
        if own is None or self._tree is None:
            return []
        tree, queue = self._tree.copy(), session.queues[own.queue]
        tree.allocated.add(task.request)
        tree.put(queue, own, self._amounts[own.uid].copy().add(task.request))
        victims = []
        for other in others:
            job = session.jobs.get(other.job)
            if job is None:
                continue
            its_queue, amount = session.queues[job.queue], self._amounts[job.uid]
            tree.allocated.subtract(other.request)
            tree.put(its_queue, job, amount.copy().subtract(other.request))
            if tree.compare(queue, its_queue) < 0:
                victims.append(other)
            tree.allocated.add(other.request)
            tree.put(its_queue, job, amount.copy())
        return victims

    def allocated(self, task: VolcanoTask) -> bool:
        """Count a placed task."""
        self._count(task, 1)
        return True

    def released(self, task: VolcanoTask) -> None:
        """No longer count a task."""
        self._count(task, -1)

    def _count(self, task: VolcanoTask, sign: int) -> None:
        job, amount = self._session.jobs.get(task.job), self._amounts.get(task.job)
        if job is None or amount is None:
            return
        if job.uid not in self._changed:
            self._changed.add(job.uid)
            amount = self._amounts[job.uid] = amount.copy()
        self._shares.pop(job.uid, None)
        books = [amount] if self._tree is None else [amount, self._tree.allocated]
        for book in books:
            if sign > 0:
                book.add(task.request)
            else:
                book.subtract(task.request)
        if self._tree is not None:
            self._update(self._tree, job)
