"""Working: jobs, nodes and queues while a session works on them, and the steps that change them.

Every step is seen by the policies that keep shares. Steps answer with what went wrong, "" when
nothing did: the original logs and goes on, half-way, and what it then does follows from that.

Source: kube-batch v0.5, framework/session.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from stowplan.batch.amounts import Arithmetic
from stowplan.batch.answers import place_of, shown, takes
from stowplan.batch.capability import Capabilities
from stowplan.batch.compat import Compat
from stowplan.batch.jobs import Job, Task, TaskStatus
from stowplan.batch.nodes import NodeLedger
from stowplan.batch.queues import QueueInfo
from stowplan.batch.rules import NoRules, Rules
from stowplan.batch.tiers import Hooks
from stowplan.framework.problems import ContractError


class Outside(Protocol):
    """Who carries out what sessions decide. Answers with what went wrong, "" when nothing did."""

    def bind(self, task: Task) -> str:
        """Bind the task's pod to its node."""

    def evict(self, task: Task, reason: str) -> str:
        """Delete the task's pod."""


class Handlers(msgspec.Struct, frozen=True):
    """What a policy wants to hear: tasks that were given something, tasks that gave it back.

    Raises ContractError for what cannot be called with a task.
    """

    allocated: Callable[[Task], None]
    deallocated: Callable[[Task], None]

    def __post_init__(self) -> None:
        """Look at both."""
        for name in self.__struct_fields__:
            function = getattr(self, name)
            if not callable(function) or not takes(function, 1):
                got = f"got {shown(function)}, wanted a function of one task"
                raise ContractError(f"{place_of(function)}: Handlers.{name}: {got}")


class Opened(msgspec.Struct, frozen=True):
    """What a session works on.

    promised: id of a job -> uid -> node, of earlier sessions. first: id of a job that goes before
    all others -> how many tasks it is to get then, beyond those that it needs to start.
    """

    jobs: dict[str, Job]
    nodes: NodeLedger
    queues: dict[str, QueueInfo]
    promised: dict[str, dict[str, str]] = {}
    first: Mapping[str, int] = {}


class Working:
    """The state of a session.

    rules: NoRules until somebody sets them. evictions_seen: grows with each eviction, and with each
    that is taken back. promised, first: as opened. preemptors: uid of an evicted task -> the task
    that gets its room. capabilities: what queues with a capability have of it.
    """

    def __init__(self, opened: Opened, hooks: Hooks, compat: Compat, outside: Outside) -> None:
        self.jobs = opened.jobs
        self.nodes = opened.nodes
        self.queues = opened.queues
        self.promised = opened.promised
        self.first = opened.first
        self.preemptors: dict[str, Task] = {}
        self.hooks = hooks
        self.compat = compat
        self.arithmetic = Arithmetic(compat)
        self.capabilities = Capabilities(
            self.queues, self.jobs, self.arithmetic, is_ignored=compat.ignores_capability
        )
        self.rules: Rules = NoRules()
        self.handlers: list[Handlers] = []
        self.bound: list[Task] = []
        self.evicted: list[tuple[Task, str]] = []
        self.failed: list[tuple[str, str, str]] = []
        self.evictions_seen = 0
        self._outside = outside

    # Steps.

    def put(self, task: Task, row: int, status: TaskStatus, *, regardless: bool = False) -> str:
        """Let a task be on a node as Allocated or Pipelined.

        regardless: policies hear of it even if the node did not take it.
        """
        nodes = self.nodes
        self.jobs[task.job].turn(task, status)
        task.node = nodes.names[row]
        wrong = nodes.add(row, task)
        if wrong and not regardless:
            return wrong
        self.capabilities.hold(task)
        if not wrong:
            self.rules.placed(task, row)
        for handlers in self.handlers:
            handlers.allocated(task)
        return wrong

    def unput(self, task: Task) -> None:
        """Take back `put`."""
        row = self.nodes.row(task.node)
        self.jobs[task.job].turn(task, TaskStatus.PENDING)
        if not self.nodes.remove(row, task.key):
            self.rules.unplaced(task, row)
        self.capabilities.let_go(task)
        for handlers in self.handlers:
            handlers.deallocated(task)
        if not self.compat.unevict_loses_node:
            task.node = ""

    def release(self, task: Task, *, regardless: bool = False) -> str:
        """Let a task be on its way out."""
        self.evictions_seen += 1
        self.jobs[task.job].turn(task, TaskStatus.RELEASING)
        row = self.nodes.row(task.node)
        wrong = self.nodes.update(row, task) if row >= 0 else ""
        if wrong and not regardless:
            return wrong
        self.capabilities.release(task)
        for handlers in self.handlers:
            handlers.deallocated(task)
        return wrong

    def unrelease(self, task: Task, before: TaskStatus) -> None:
        """Take back `release`."""
        self.evictions_seen += 1
        self.jobs[task.job].turn(task, before)
        row = self.nodes.row(task.node)
        # The original adds to the node what is still there: the node goes on releasing it.
        if row >= 0 and not self.compat.unevict_loses_node:
            self.nodes.update(row, task)
        self.capabilities.unrelease(task)
        for handlers in self.handlers:
            handlers.allocated(task)

    # What leaves the session.

    def send_eviction(self, task: Task, reason: str) -> str:
        """Have a task's pod deleted."""
        wrong = self._outside.evict(task, reason)
        if wrong:
            self.failed.append((task.key, wrong, task.job))
        else:
            self.evicted.append((task, reason))
        return wrong

    def bind_if_ready(self, job: Job) -> str:
        """Bind what is allocated of a job if the job is ready."""
        if not self.hooks.job_ready(job):
            return ""
        for task in list(job.of(TaskStatus.ALLOCATED).values()):
            wrong = self._outside.bind(task)
            if wrong:
                self.failed.append((task.key, wrong, task.job))
                return wrong
            job.turn(task, TaskStatus.BINDING)
            self.bound.append(task)
        return ""
