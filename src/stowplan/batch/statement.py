"""Statement: a ledger of typed operations on a session, to be kept whole or taken back.

Each operation takes effect at once, on jobs, nodes and shares, so that what comes next sees it. The
ledger knows how to take it back: `mark`, `rollback` to the mark, the last operation first. What
leaves the session (binds and evictions) leaves at `commit` only.

Source: kube-batch v0.5, framework/statement.go.
"""

from __future__ import annotations

import msgspec

from stowplan.batch.state.jobs import JobInfo, TaskInfo, TaskStatus
from stowplan.batch.state.session_state import SessionState


class AllocateOperation(msgspec.Struct, frozen=True, gc=False):
    """A pending task was given room that is free on a node."""

    task: TaskInfo


class PipelineOperation(msgspec.Struct, frozen=True, gc=False):
    """A pending task was promised room that is being freed on a node."""

    task: TaskInfo


class EvictOperation(msgspec.Struct, frozen=True, gc=False):
    """A task was told to go. before: its status until then."""

    task: TaskInfo
    reason: str
    before: TaskStatus


Operation = AllocateOperation | PipelineOperation | EvictOperation


class Statement:
    """Operations that belong together. One is open at a time."""

    def __init__(self, state: SessionState) -> None:
        self._session_state = state
        self._ledger: list[Operation] = []
        self._revision = state.nodes.revision

    def __len__(self) -> int:
        return len(self._ledger)

    @property
    def evicts(self) -> bool:
        """True when somebody has to go."""
        return any(isinstance(operation, EvictOperation) for operation in self._ledger)

    def mark(self) -> int:
        """The present place in the ledger, to roll back to."""
        return len(self._ledger)

    def allocate(self, task: TaskInfo, row: int) -> str:
        """Give a task free room; returns what went wrong, "" when nothing did."""
        self._ledger.append(AllocateOperation(task))
        return self._session_state.put(task, row, TaskStatus.ALLOCATED)

    def pipeline(self, task: TaskInfo, row: int) -> str:
        """Promise a task room that is being freed; returns what went wrong."""
        self._ledger.append(PipelineOperation(task))
        return self._session_state.put(task, row, TaskStatus.PIPELINED, even_if_failed=True)

    def evict(self, task: TaskInfo, reason: str) -> str:
        """Tell a task to go; nothing leaves the session before `commit`."""
        self._ledger.append(EvictOperation(task, reason, task.status))
        return self._session_state.release(task, even_if_failed=True)

    def rollback(self, mark: int = 0) -> None:
        """Take back everything after `mark`, the last first."""
        state = self._session_state
        while len(self._ledger) > mark:
            match self._ledger.pop():
                case AllocateOperation(task) | PipelineOperation(task):
                    state.unput(task)
                case EvictOperation(task, _, before):
                    state.unrelease(task, before)
        if not self._ledger and not state.compat.unevict_loses_node:
            state.nodes.revision = self._revision

    def commit(self) -> None:
        """Let the evictions leave, and bind what is allocated of jobs that are ready."""
        state = self._session_state
        jobs: dict[str, JobInfo] = {}
        self._note_preemptors()
        for operation in self._ledger:
            match operation:
                case EvictOperation(task, reason, before):
                    if state.send_eviction(task, reason):
                        state.unrelease(task, before)
                case AllocateOperation(task):
                    jobs[task.job] = state.jobs[task.job]
                case PipelineOperation(_):
                    pass
        self._ledger.clear()
        self._revision = state.nodes.revision
        for job in jobs.values():
            state.bind_if_ready(job)

    def _note_preemptors(self) -> None:
        """Who goes makes room for the task that is promised a place on that node next."""
        latest: dict[str, TaskInfo] = {}
        for operation in reversed(self._ledger):
            match operation:
                case PipelineOperation(task) | AllocateOperation(task):
                    latest[task.node] = task
                case EvictOperation(task, _, _):
                    if task.node in latest:
                        self._session_state.preemptors[task.uid] = latest[task.node]
