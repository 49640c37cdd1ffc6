"""Victims: which tasks may be evicted from which node, and whether that suffices."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stowplan.batch.session import Session
from stowplan.batch.state.capability import requested_of
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.task_requests import EPSILON
from stowplan.batch.statement import Statement
from stowplan.batch.tiers import VictimFunction
from stowplan.columns.array_types import Ints
from stowplan.framework.deciders.tasks import TaskStatus


class VictimCandidates:
    """Running tasks of some jobs by row, in eviction order.

    Order: lowest job priority, then lowest task priority, then the task that would be served last.
    """

    def __init__(self, session: Session, tasks: Iterable[TaskInfo]) -> None:
        self._nodes = session.state.nodes
        self._jobs = session.jobs
        self.by_row: dict[int, list[TaskInfo]] = {}
        for task in tasks:
            row = self._nodes.row(task.node)
            if self._nodes.has_ready_node(row):
                self.by_row.setdefault(row, []).append(task)
        self._rows = np.fromiter(self.by_row, dtype=np.int64, count=len(self.by_row))
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._sorted: set[int] = set()

    def could_fit(self, task: TaskInfo) -> NDArray[np.bool_]:
        """bool (n_nodes,): nodes where the task would fit if all candidates were evicted."""
        nodes, rows = self._nodes, self._rows
        result = np.zeros(nodes.n_nodes, dtype=np.bool_)
        fits = np.ones(rows.shape[0], dtype=np.bool_)
        for name, request in nodes.least(task):
            fits &= nodes.future(name, rows) + self._sum(name) > request - EPSILON
        found = rows[fits]
        if nodes.cards.request(task) is not None:
            found = found[[self._could_have_cards(task, row) for row in found.tolist()]]
        result[found] = True
        return result

    def _could_have_cards(self, task: TaskInfo, row: int) -> bool:
        uids = {one.uid for one in self.by_row[row]}
        return self._nodes.cards.fits_without(task, row, uids)

    def on(self, row: int) -> list[TaskInfo]:
        """Candidates on a row."""
        tasks = self.by_row.get(row)
        if tasks is None:
            return []
        if row not in self._sorted:
            self._sorted.add(row)
            tasks.sort(
                key=lambda t: (-self._jobs[t.job].priority, -t.priority, t.created, t.uid),
                reverse=True,
            )
        return tasks

    def _sum(self, name: str) -> NDArray[np.float64]:
        found = self._sums.get(name)
        if found is None:
            sums = (
                sum(t.ask.amounts.get(name, 0) for t in tasks) for tasks in self.by_row.values()
            )
            found = self._sums[name] = np.fromiter(sums, dtype=np.float64, count=len(self.by_row))
        return found


class VictimSearch:
    """Candidates and known failures of one action, kept until an eviction changes them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kept: dict[Hashable, VictimCandidates] = {}
        self._reclaimable_jobs: dict[str, list[JobInfo]] = {}
        self._hopeless: set[Hashable] = set()
        self._seen = -1

    def candidates(
        self, key: Hashable, tasks: Callable[[], Iterable[TaskInfo]]
    ) -> VictimCandidates:
        """Candidates under a key; rebuilt if a task was evicted since."""
        self._follow()
        if key not in self._kept:
            self._kept[key] = VictimCandidates(self._session, tasks())
        return self._kept[key]

    def reclaimable_jobs(self, kind: Literal["preemptable", "reclaimable"]) -> list[JobInfo]:
        """Jobs with running tasks of which a session plugin might release one."""
        self._follow()
        found = self._reclaimable_jobs.get(kind)
        if found is None:
            hooks = self._session.hooks
            found = self._reclaimable_jobs[kind] = [
                job
                for job in self._session.jobs.values()
                if TaskStatus.RUNNING in job.by_status and not hooks.spares(kind, job)
            ]
        return found

    def place(
        self,
        statement: Statement,
        task: TaskInfo,
        candidates: VictimCandidates,
        key: Hashable,
        victims: VictimFunction,
        reason: str,
    ) -> bool:
        """Place a task on idle resources, else on releasing resources, else by evicting victims.

        key: of the candidates. Returns False and changes nothing if no node is possible. If the
        task's queue has reached its capability, only victims of that queue help.
        """
        if not candidates.by_row and not statement.evicts:
            # Without candidates, placement is left to allocate.
            return False
        self._follow()
        session = self._session
        nodes = session.state.nodes
        # Without candidates, tasks with equal requests get equal results.
        hopeless = (key if candidates.by_row else None, nodes.wants(task), nodes.freed)
        if hopeless in self._hopeless:
            return False
        later = nodes.fits_future(task)
        request = later | candidates.could_fit(task)
        if not request.any():
            self._hopeless.add(hopeless)
            return False
        rows = np.flatnonzero(request)
        rows = rows[session.hooks.passing(task, rows)]
        # No victims are needed where the task fits without them.
        is_above = bool(session.state.capabilities.shortage(task))
        without = rows[later[rows]]
        if without.shape[0] and not is_above:
            self._put(statement, task, without)
            return True
        for row in session.ranked(task, rows).tolist() if rows.shape[0] else ():
            allowed = victims(task, candidates.on(row))
            if _evict_until(session, statement, task, row, allowed, reason):
                statement.pipeline(task, row)
                return True
        return False

    def _put(self, statement: Statement, task: TaskInfo, rows: Ints) -> None:
        """Place a task on one of the rows with idle or releasing resources; allocate it if possible
        now."""
        session = self._session
        now = rows[session.state.nodes.fits_idle(task, rows)]
        if now.shape[0] and session.state.capabilities.allows(task):
            statement.allocate(task, session.best(task, now))
        else:
            statement.pipeline(task, session.best(task, rows))

    def _follow(self) -> None:
        seen = self._session.state.eviction_revision
        if seen != self._seen:
            self._seen = seen
            self._kept.clear()
            self._reclaimable_jobs.clear()
            self._hopeless.clear()


def running(jobs: Iterable[JobInfo]) -> Iterable[TaskInfo]:
    """Running tasks of these jobs."""
    for job in jobs:
        yield from job.of(TaskStatus.RUNNING).values()


def _evict_until(
    session: Session,
    statement: Statement,
    task: TaskInfo,
    row: int,
    victims: Sequence[TaskInfo],
    reason: str,
) -> bool:
    """Evict the first of `victims` until the task fits on the row; evict none if that does not
    suffice.

    VictimFunction without which the task would fit as well are spared. If the queue's capability is
    exceeded, victims of that queue must make up for it.
    """
    nodes, here = session.state.nodes, np.array([row], dtype=np.int64)
    least = nodes.least(task)
    missing = {name: request - int(nodes.future(name, here)[0]) for name, request in least}
    excess = session.state.capabilities.shortage(task)
    queue = session.jobs[task.job].queue

    def helps(chosen: Sequence[TaskInfo]) -> bool:
        own = [v for v in chosen if session.jobs[v.job].queue == queue] if excess else ()
        is_enough = all(
            short <= sum(v.ask.amounts.get(name, 0) for v in chosen)
            for name, short in missing.items()
        ) and all(
            above - sum(requested_of(v, name) for v in own) < EPSILON
            for name, above in excess.items()
        )
        return is_enough and nodes.cards.fits_without(task, row, {v.uid for v in chosen})

    chosen: list[TaskInfo] = []
    for victim in victims:
        if helps(chosen):
            break
        chosen.append(victim)
    if not helps(chosen):
        return False
    # Eviction order starts with the least important, so necessity is checked from the last.
    for victim in tuple(reversed(chosen)):
        rest = [other for other in chosen if other is not victim]
        if helps(rest):
            chosen = rest
    for victim in chosen:
        statement.evict(victim, reason)
    return True
