"""What the victims of one node can free at most; where that is too little no node is of use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from stowplan.batch.queue_models.kai.actions.victim_scenario import FreedAmounts, VictimScenario
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_task import ACTIVE_STATUSES
from stowplan.batch.queue_models.kai.state.node_rows import Column, Rows


class VictimReach:
    """Pods with a place of the jobs that a search may evict, and which rows each job is on."""

    def __init__(self, session: KaiSession, jobs: Iterable[KaiJob]) -> None:
        self._session = session
        self._jobs = list(jobs)
        self._freed: FreedAmounts | None = None
        # Jobs and rows that they are on, each pair once.
        self._of_job: Rows
        self._on_row: Rows

    def may_work(self, scenario: VictimScenario) -> bool:
        """Whether there may be room for the job that waits once the recorded victims are gone, and
        all of the jobs that are on some one node. False is certain: it is what
        `VictimScenario.may_work` answers for each node."""
        freed, recorded = self._all_freed(), scenario.recorded_freed
        if not freed.is_known or not recorded.is_known:
            return True
        session, rows = self._session, self._session.rows
        now = rows.later + self._by_row(recorded)
        # Recorded victims of a job on the node count twice there.
        most = now + self._by_row(freed)
        for request, count in scenario.job.next_plain_requests().items():
            room = session.room_once_freed(request, recorded.rows, [recorded.amounts])
            if room >= count:
                continue
            more = rows.counts_for(request, most) - rows.counts_for(request, now)
            if room + self._most(more) < count:
                return False
        return True

    def _most(self, more: Column) -> float:
        """The most that the rows of the jobs on one row have together. more: by row."""
        of_jobs = np.bincount(self._of_job, more[self._on_row], len(self._jobs))
        others = of_jobs[self._of_job] - more[self._on_row]
        return float((more + np.bincount(self._on_row, others, len(more))).max(initial=0.0))

    def _by_row(self, freed: FreedAmounts) -> npt.NDArray[np.float64]:
        """float64 (n_resources, n_nodes)."""
        n_rows = len(self._session.rows.nodes)
        return np.array([np.bincount(freed.rows, one, n_rows) for one in freed.amounts])

    def _all_freed(self) -> FreedAmounts:
        if self._freed is None:
            pods = [
                [task for task in job.tasks() if task.status & ACTIVE_STATUSES]
                for job in self._jobs
            ]
            self._freed = FreedAmounts.of(self._session, [task for own in pods for task in own])
            self._pair([len(own) for own in pods], self._freed.rows)
        return self._freed

    def _pair(self, sizes: Sequence[int], rows: Rows) -> None:
        n_rows = max(len(self._session.rows.nodes), 1)
        pairs = np.unique(np.repeat(np.arange(len(sizes)), sizes) * n_rows + rows)
        self._of_job, self._on_row = np.divmod(pairs, n_rows)
