"""Statement: a ledger of typed operations on a session, to be kept whole or taken back.

Each operation takes effect at once, on jobs, nodes and shares, so that what comes next sees it. The
ledger knows how to take it back: `mark`, `rollback` to the mark, the last operation first. What
leaves the session (binds and evictions) leaves at `commit` only.

Source: kube-batch v0.5, framework/statement.go.
"""

from __future__ import annotations

import msgspec

from stowplan.batch.jobs import Job, Task, TaskStatus
from stowplan.batch.working import Working


class Allocated(msgspec.Struct, frozen=True, gc=False):
    """A pending task was given room that is free on a node."""

    task: Task


class Pipelined(msgspec.Struct, frozen=True, gc=False):
    """A pending task was promised room that is being freed on a node."""

    task: Task


class Evicted(msgspec.Struct, frozen=True, gc=False):
    """A task was told to go. before: its status until then."""

    task: Task
    reason: str
    before: TaskStatus


Operation = Allocated | Pipelined | Evicted


class Statement:
    """Operations that belong together. One is open at a time."""

    def __init__(self, working: Working) -> None:
        self._working = working
        self._ledger: list[Operation] = []
        self._state = working.nodes.state

    def __len__(self) -> int:
        return len(self._ledger)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What was done and not taken back, in order."""
        return tuple(self._ledger)

    @property
    def evicts(self) -> bool:
        """True when somebody has to go."""
        return any(isinstance(operation, Evicted) for operation in self._ledger)

    def mark(self) -> int:
        """The present place in the ledger, to roll back to."""
        return len(self._ledger)

    def allocate(self, task: Task, row: int) -> str:
        """Give a task free room; returns what went wrong, "" when nothing did."""
        self._ledger.append(Allocated(task))
        return self._working.put(task, row, TaskStatus.ALLOCATED)

    def pipeline(self, task: Task, row: int) -> str:
        """Promise a task room that is being freed; returns what went wrong."""
        self._ledger.append(Pipelined(task))
        return self._working.put(task, row, TaskStatus.PIPELINED, regardless=True)

    def evict(self, task: Task, reason: str) -> str:
        """Tell a task to go; nothing leaves the session before `commit`."""
        self._ledger.append(Evicted(task, reason, task.status))
        return self._working.release(task, regardless=True)

    def rollback(self, mark: int = 0) -> None:
        """Take back everything after `mark`, the last first."""
        working = self._working
        while len(self._ledger) > mark:
            match self._ledger.pop():
                case Allocated(task) | Pipelined(task):
                    working.unput(task)
                case Evicted(task, _, before):
                    working.unrelease(task, before)
        if not self._ledger and not working.compat.unevict_loses_node:
            working.nodes.state = self._state

    def commit(self) -> None:
        """Let the evictions leave, and bind what is allocated of jobs that are ready."""
        working = self._working
        jobs: dict[str, Job] = {}
        self._note_preemptors()
        for operation in self._ledger:
            match operation:
                case Evicted(task, reason, before):
                    if working.send_eviction(task, reason):
                        working.unrelease(task, before)
                case Allocated(task):
                    jobs[task.job] = working.jobs[task.job]
                case Pipelined(_):
                    pass
        self._ledger.clear()
        self._state = working.nodes.state
        for job in jobs.values():
            working.bind_if_ready(job)

    def _note_preemptors(self) -> None:
        """Who goes makes room for the task that is promised a place on that node next."""
        latest: dict[str, Task] = {}
        for operation in reversed(self._ledger):
            match operation:
                case Pipelined(task) | Allocated(task):
                    latest[task.node] = task
                case Evicted(task, _, _):
                    if task.node in latest:
                        self._working.preemptors[task.uid] = latest[task.node]
