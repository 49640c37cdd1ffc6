"""What the jobs of each queue use and ask for, kept from one session to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from stowplan.batch.queue_models.kai.kai_objects import queue_terms
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_queue import RANGE, KaiQueueTerms, QueueTree
from stowplan.batch.queue_models.kai.state.kai_task import ALLOCATED_STATUSES, KaiStatus
from stowplan.objects.kai.kai_kinds import KaiQueueObject

FIRST_SIZE = 64
N_SUMS = 3 * len(RANGE)


class QueueSums:
    """Amounts of jobs: what they have, what of it may not be preempted, what they ask for."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._free: list[int] = []
        self._amounts: npt.NDArray[np.float64] = np.zeros((FIRST_SIZE, N_SUMS))
        self._queues: npt.NDArray[np.intp] = np.zeros(FIRST_SIZE, dtype=np.intp)
        self._numbers: dict[str, int] = {}
        self._terms: dict[str, tuple[KaiQueueObject, KaiQueueTerms]] = {}

    def set(self, job: KaiJob, least_memory: int | None) -> None:
        """Count a job. least_memory: of the cards of any node."""
        row = self._rows.get(job.uid)
        if row is None:
            row = self._free.pop() if self._free else len(self._rows)
            self._rows[job.uid] = row
            if row == len(self._queues):
                self._amounts = np.concatenate([self._amounts, np.zeros_like(self._amounts)])
                self._queues = np.concatenate([self._queues, np.zeros_like(self._queues)])
        self._amounts[row] = _sums(job, least_memory)
        self._queues[row] = self._numbers.setdefault(job.queue, len(self._numbers))

    def drop(self, key: str) -> None:
        """A job is gone."""
        row = self._rows.pop(key, None)
        if row is not None:
            self._amounts[row] = 0.0
            self._free.append(row)

    def tree(self, queues: Iterable[KaiQueueObject], total: Sequence[float]) -> QueueTree:
        """The queues with the amounts of their jobs."""
        terms = []
        for queue in queues:
            known = self._terms.get(queue.name)
            if known is None or known[0] is not queue:
                known = self._terms[queue.name] = queue, queue_terms(queue)
            terms.append(known[1])
        tree = QueueTree(terms, total)
        columns = [
            np.bincount(self._queues, self._amounts[:, i], len(self._numbers)).tolist()
            for i in range(N_SUMS)
        ]
        for name, number in self._numbers.items():
            own = [column[number] for column in columns]
            for above in tree.up(name):
                for i in RANGE:
                    above.allocated[i] += own[i]
                    above.fixed[i] += own[len(RANGE) + i]
                    above.request[i] += own[2 * len(RANGE) + i]
        return tree


def _sums(job: KaiJob, least_memory: int | None) -> list[float]:
    sums = [0.0] * N_SUMS
    size = len(RANGE)
    for task in job.tasks():
        if task.status & ALLOCATED_STATUSES:
            shares = job.index.shares(task.accepted)
            for i in RANGE:
                sums[i] += shares[i]
                sums[2 * size + i] += shares[i]
        elif task.status == KaiStatus.PENDING:
            cpu, memory, cards = job.index.shares(task.request)
            cards += task.cards.memory_as_cards(least_memory)
            for i, amount in enumerate((cpu, memory, cards)):
                sums[2 * size + i] += amount
    if not job.is_preemptible:
        sums[size : 2 * size] = sums[:size]
    return sums
