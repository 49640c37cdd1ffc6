"""RunningTasks: when the pods on each node end at the latest, followed by delta.

A pod ends one run limit after its start (`status.startTime`, else the session by which it had its
node), one that is being deleted at its deletion timestamp. A pod without a limit does not end.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence

import numpy as np

from stowplan.batch.actions.availability_profile import Releases
from stowplan.batch.session import Session
from stowplan.batch.state.jobs import TaskInfo
from stowplan.batch.state.nodes import NodeTask, counted_scalars
from stowplan.columns import NodeTable
from stowplan.columns.array_types import Floats
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.timing.run_limits import run_limit_s

PODS = "pods"
SECOND = 10**9
OVERDUE_S = 1.0
"""A pod that is past its end, or is being deleted, ends this much later at the earliest."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


class RunningTasks:
    """Ends of pods by row, kept between sessions for the rows on which nothing has changed."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self._table: NodeTable | None = None
        self._marks = -1, -1
        # Rows that a session has changed, other than by what stays in the table.
        self._of_sessions: set[int] = set()
        # By row: Unix seconds (n_tasks,) and amounts (n_resources, n_tasks) of tasks that end.
        self._ends: list[Floats] = []
        self._amounts: list[Floats] = []

    def releases(self, session: Session) -> Releases:
        """Ends from now on, of all tasks that end."""
        self._follow(session)
        counts = [ends.shape[0] for ends in self._ends]
        ends = np.concatenate([np.zeros(0), *self._ends])
        amounts = np.concatenate([np.zeros((len(self.names), 0)), *self._amounts], axis=1)
        rows = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        return Releases(np.maximum(ends - session.state.now / SECOND, OVERDUE_S), rows, amounts)

    def vector(self, task: TaskInfo) -> Floats:
        """float64 (n_resources,): what a task takes from its node."""
        return self._vector(task.ask.running_pairs)

    def request(self, task: TaskInfo) -> Floats:
        """float64 (n_resources,): what a task needs to start."""
        return self._vector(task.ask.wants)

    def _vector(self, pairs: Sequence[tuple[str, float]]) -> Floats:
        found = np.zeros(len(self.names))
        for name, amount in pairs:
            if name in self.names:
                found[self.names.index(name)] = amount
        found[-1] = 1.0
        return found

    def idle(self, session: Session) -> Floats:
        """float64 (n_resources, n_rows): free now; nothing on nodes that are not ready."""
        nodes = session.state.nodes
        columns = [nodes.idle.get(name, nodes.n_nodes) for name in self.names[:-1]]
        free = np.stack([*columns, (nodes.pod_limit - nodes.pod_count).astype(np.float64)])
        return np.where(nodes.has_ready_nodes(), free, 0.0)

    def _follow(self, session: Session) -> None:
        """Evaluate the rows that changed, or all of them."""
        nodes = session.state.nodes
        table = nodes.table
        names = ("cpu", "memory", *counted_scalars(table), PODS)
        changed = table.rows_since(self._marks)
        touched = nodes.touched.since(0)
        is_same = table is self._table and len(self._ends) == table.n_nodes
        if changed is None or touched is None or not is_same or names != self.names:
            self.names, self._table = names, table
            self._ends = [np.zeros(0)] * table.n_nodes
            self._amounts = [np.zeros((len(names), 0))] * table.n_nodes
            changed = list(range(table.n_nodes))
            touched = changed
        for row in {*changed, *touched, *self._of_sessions}:
            self._evaluate(session, row)
        self._marks, self._of_sessions = table.marks, set(touched)

    def _evaluate(self, session: Session, row: int) -> None:
        ending: list[tuple[float, Floats]] = []
        for held in session.state.nodes.tasks_on(row):
            at = _end_of(held, session)
            if not math.isinf(at):
                ending.append((at, self.vector(held.task)))
        self._ends[row] = np.array([at for at, _ in ending])
        self._amounts[row] = (
            np.stack([amount for _, amount in ending], axis=1)
            if ending
            else np.zeros((len(self.names), 0))
        )


def _end_of(held: NodeTask, session: Session) -> float:
    """Unix seconds at which a task on a node ends at the latest; infinity for never."""
    task, status = held.task, held.status
    if status is TaskStatus.PIPELINED:
        # It takes what others release: see `BackfillTimed`.
        return math.inf
    deleted = task.pod.metadata.deletion_timestamp
    if status is TaskStatus.RELEASING:
        return session.state.now / SECOND if deleted is None else _unix_s(deleted)
    limit = run_limit_s(task.pod)
    if math.isinf(limit):
        return math.inf
    started = task.pod.status.start_time
    placed = session.state.placed_at.get(task.uid, session.state.now) / SECOND
    if started is not None and _unix_s(started) <= session.state.now / SECOND:
        placed = _unix_s(started)
    return placed + limit


def _unix_s(at: datetime.datetime) -> float:
    return (at - _EPOCH) / _MICROSECOND / 1e6
