"""SessionState: jobs, nodes and queues during a session, and the steps that change them.

Session plugins that keep shares are notified of every step. A step returns an error message, or ""
on success.

Source: kube-batch v0.5, framework/session.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from stowplan.batch.hook_contracts import accepts_arguments, short_repr, source_location
from stowplan.batch.session_rules import NoSessionRules, SessionRules
from stowplan.batch.state.capability import QueueCapabilities
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.nodes import SessionNodes
from stowplan.batch.state.queues import QueueInfo
from stowplan.batch.tiers import Hooks
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.framework.problems import ContractError


class BinderEvictor(Protocol):
    """Performs a session's decisions."""

    def bind(self, task: TaskInfo) -> None:
        """Bind the task's pod to its node."""

    def evict(self, task: TaskInfo, reason: str) -> None:
        """Delete the task's pod."""


class TaskEventHandlers(msgspec.Struct, frozen=True):
    """Callbacks of a session plugin for tasks that were allocated or deallocated.

    Raises ContractError for a function that cannot be called with a task.
    """

    allocated: Callable[[TaskInfo], None]
    deallocated: Callable[[TaskInfo], None]

    def __post_init__(self) -> None:
        """Check both functions."""
        for name in self.__struct_fields__:
            function = getattr(self, name)
            if not callable(function) or not accepts_arguments(function, 1):
                got = f"invalid value: {short_repr(function)}: expected a function of one task"
                raise ContractError(f"{source_location(function)}: TaskEventHandlers.{name}: {got}")


class ClusterInfo(msgspec.Struct, frozen=True):
    """State that a session opens with.

    nominations: job id -> uid -> node, of earlier sessions. first: id of a job that goes before all
    others -> number of tasks to place in addition to its minimum. now, placed_at: as in Inventory.
    """

    jobs: dict[str, JobInfo]
    nodes: SessionNodes
    queues: dict[str, QueueInfo]
    nominations: dict[str, dict[str, str]] = {}
    first: Mapping[str, int] = {}
    now: int = 0
    placed_at: Mapping[str, int] = {}


class SessionState:
    """The state of a session.

    rules: NoSessionRules until set. eviction_revision: grows with each eviction and each undone
    eviction. nominations, first, now, placed_at: as in ClusterInfo. preemptors: uid of an evicted
    task -> the task that gets its resources. capabilities: usage of queues with a capability.
    """

    def __init__(
        self, cluster_info: ClusterInfo, hooks: Hooks, binder_evictor: BinderEvictor
    ) -> None:
        self.jobs = cluster_info.jobs
        self.nodes = cluster_info.nodes
        self.queues = cluster_info.queues
        self.nominations = cluster_info.nominations
        self.first = cluster_info.first
        self.now = cluster_info.now
        self.placed_at = cluster_info.placed_at
        self.preemptors: dict[str, TaskInfo] = {}
        self.hooks = hooks
        self.capabilities = QueueCapabilities(self.queues, self.jobs)
        self.rules: SessionRules = NoSessionRules()
        self.handlers: list[TaskEventHandlers] = []
        self.bound: list[TaskInfo] = []
        self.evicted: list[tuple[TaskInfo, str]] = []
        self.eviction_revision = 0
        self._binder_evictor = binder_evictor

    # Steps.

    def put(self, task: TaskInfo, row: int, status: TaskStatus) -> str:
        """Place a task on a node as Allocated or Pipelined. If the node refuses it, nothing
        changes."""
        nodes = self.nodes
        problem = nodes.place(row, task, pipelined=status is TaskStatus.PIPELINED)
        if problem:
            return problem
        self.jobs[task.job].turn(task, status)
        task.node = nodes.names[row]
        self.capabilities.hold(task)
        for handlers in self.handlers:
            handlers.allocated(task)
        return ""

    def undo_put(self, task: TaskInfo, mark: int) -> None:
        """Undo `put`. mark: of the nodes, before it."""
        self.jobs[task.job].turn(task, TaskStatus.PENDING)
        self.nodes.undo(mark, self.nodes.row(task.node), task)
        self.capabilities.give_back(task)
        for handlers in self.handlers:
            handlers.deallocated(task)
        task.node = ""

    def release(self, task: TaskInfo) -> str:
        """Mark a task as releasing; always succeeds."""
        self.eviction_revision += 1
        row = self.nodes.row(task.node)
        if row >= 0 and task.status is not TaskStatus.RELEASING:
            self.nodes.release(row, task)
        self.jobs[task.job].turn(task, TaskStatus.RELEASING)
        self.capabilities.release(task)
        for handlers in self.handlers:
            handlers.deallocated(task)
        return ""

    def unrelease(self, task: TaskInfo, before: TaskStatus, mark: int) -> None:
        """Undo `release`. before: the task's status until then. mark: of the nodes, before it."""
        self.eviction_revision += 1
        self.jobs[task.job].turn(task, before)
        self.nodes.undo(mark, self.nodes.row(task.node), task)
        self.capabilities.unrelease(task)
        for handlers in self.handlers:
            handlers.allocated(task)

    # Effects binder_evictor the session.

    def send_eviction(self, task: TaskInfo, reason: str) -> None:
        """Delete a task's pod."""
        self._binder_evictor.evict(task, reason)
        self.evicted.append((task, reason))

    def bind_if_ready(self, job: JobInfo) -> None:
        """Bind the allocated tasks of a job if the job is ready."""
        if not self.hooks.job_ready(job):
            return
        for task in list(job.of(TaskStatus.ALLOCATED).values()):
            self._binder_evictor.bind(task)
            job.turn(task, TaskStatus.BINDING)
            self.bound.append(task)
