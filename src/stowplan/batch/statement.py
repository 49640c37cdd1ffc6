"""Statement: operations on a session that are committed or rolled back together.

Each operation takes effect at once on jobs, on the overlay of the nodes and on shares, so that
later steps see it. `mark` and `rollback` undo operations in reverse order. Binds and evictions
leave the session only at `commit`.

Source: kube-batch v0.5, framework/statement.go.
"""

from __future__ import annotations

import msgspec

from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.session_state import SessionState
from stowplan.framework.deciders.tasks import TaskStatus


class AllocateOperation(msgspec.Struct, frozen=True, gc=False):
    """A pending task was allocated on a node's idle resources. mark: of the nodes, before it."""

    task: TaskInfo
    mark: int


class PipelineOperation(msgspec.Struct, frozen=True, gc=False):
    """A pending task was pipelined onto a node's releasing resources. mark: of the nodes, before
    it."""

    task: TaskInfo
    mark: int


class EvictOperation(msgspec.Struct, frozen=True, gc=False):
    """A task was evicted. before: its status until then. mark: of the nodes, before it."""

    task: TaskInfo
    reason: str
    before: TaskStatus
    mark: int


Operation = AllocateOperation | PipelineOperation | EvictOperation


class Statement:
    """Operations that belong together; one statement is open at a time."""

    def __init__(self, state: SessionState) -> None:
        self._session_state = state
        self._ledger: list[Operation] = []
        self._revision = state.nodes.revision

    def __len__(self) -> int:
        return len(self._ledger)

    @property
    def evicts(self) -> bool:
        """True if the statement evicts a task."""
        return any(isinstance(operation, EvictOperation) for operation in self._ledger)

    def mark(self) -> int:
        """The current position in the ledger, for `rollback`."""
        return len(self._ledger)

    def allocate(self, task: TaskInfo, row: int) -> str:
        """Allocate a task on idle resources; returns an error message or ""."""
        mark = self._session_state.nodes.mark()
        problem = self._session_state.put(task, row, TaskStatus.ALLOCATED)
        if not problem:
            self._ledger.append(AllocateOperation(task, mark))
        return problem

    def pipeline(self, task: TaskInfo, row: int) -> str:
        """Pipeline a task onto releasing resources; returns an error message or ""."""
        mark = self._session_state.nodes.mark()
        problem = self._session_state.put(task, row, TaskStatus.PIPELINED)
        if not problem:
            self._ledger.append(PipelineOperation(task, mark))
        return problem

    def evict(self, task: TaskInfo, reason: str) -> str:
        """Evict a task; nothing leaves the session before `commit`."""
        mark = self._session_state.nodes.mark()
        self._ledger.append(EvictOperation(task, reason, task.status, mark))
        return self._session_state.release(task)

    def rollback(self, mark: int = 0) -> None:
        """Undo all operations after `mark`, in reverse order."""
        state = self._session_state
        while len(self._ledger) > mark:
            match self._ledger.pop():
                case AllocateOperation(task, mark_of) | PipelineOperation(task, mark_of):
                    state.undo_put(task, mark_of)
                case EvictOperation(task, _, before, mark_of):
                    state.unrelease(task, before, mark_of)
        if not self._ledger:
            state.nodes.revision = self._revision

    def commit(self) -> None:
        """Send the evictions and bind the allocated tasks of jobs that are ready."""
        state = self._session_state
        jobs: dict[str, JobInfo] = {}
        self._note_preemptors()
        for operation in self._ledger:
            match operation:
                case EvictOperation(task, reason):
                    state.send_eviction(task, reason)
                case AllocateOperation(task):
                    jobs[task.job] = state.jobs[task.job]
                case PipelineOperation():
                    pass
        self._ledger.clear()
        self._revision = state.nodes.revision
        for job in jobs.values():
            state.bind_if_ready(job)

    def _note_preemptors(self) -> None:
        """A victim makes way for the task that is pipelined on its node next."""
        latest: dict[str, TaskInfo] = {}
        for operation in reversed(self._ledger):
            match operation:
                case PipelineOperation(task) | AllocateOperation(task):
                    latest[task.node] = task
                case EvictOperation(task):
                    if task.node in latest:
                        self._session_state.preemptors[task.uid] = latest[task.node]
