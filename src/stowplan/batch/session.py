"""Session: one round of decisions about all jobs, on the state as it was when it opened.

Policies register what they have to say, jobs that cannot be scheduled leave, actions run in the
configured order, and the close writes down what became of each group.

Source: kube-batch v0.5, framework/session.go, framework/framework.go.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.batch.amounts import Amount
from stowplan.batch.answers import Invalid
from stowplan.batch.choices import Choices
from stowplan.batch.closing import Closing, GroupWrite, PodNote
from stowplan.batch.compat import Compat
from stowplan.batch.jobs import Job, Task, TaskStatus
from stowplan.batch.queues import QueueInfo
from stowplan.batch.rules import Rules
from stowplan.batch.statement import Statement
from stowplan.batch.tiers import Hooks, Tiers
from stowplan.batch.working import Opened, Outside, Working
from stowplan.framework.metrics import Metrics
from stowplan.framework.problems import ContractError

NOT_ENOUGH_TASKS = "NotEnoughTasks"
QUEUE_CLOSED = "QueueClosed"
INVALID_GROUP = "InvalidPodGroup"
ACTION_LATENCY = "volcano_action_scheduling_latency_microseconds"
POLICY_LATENCY = "volcano_plugin_scheduling_latency_microseconds"

Ints = NDArray[np.int64]


class Policy:
    """Base of policies; a subclass overrides what it needs. name: as configurations have it."""

    name = ""

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self.arguments = arguments

    def on_open(self, session: Session) -> None:
        """Register. All jobs are there, also those that are about to be found invalid."""

    def on_start(self, session: Session) -> None:
        """Invalid jobs have gone to `session.invalid`; shares can be counted."""

    def on_close(self, session: Session) -> None:
        """All actions have run."""


class Action:
    """Base of actions: one step of a session. name: as configurations have it."""

    name = ""

    def run(self, session: Session) -> None:
        """Act on the session. A job that is gone from `session.jobs` is not to be touched."""
        where = f"class {type(self).__module__}.{type(self).__qualname__}"
        raise ContractError(f"{where}: defines no run; wanted `def run(self, session)`")


PolicyMaker = Callable[[Mapping[str, str]], Policy]
"""A policy's class, or what makes one from its arguments."""


class SessionOptions(msgspec.Struct, frozen=True):
    """tiers, actions: as configured, known ones only. policies: name -> what makes it.

    rules: what gives the session's predicates and node scores; None: every node will do.
    """

    tiers: Tiers
    actions: tuple[Action, ...]
    policies: Mapping[str, PolicyMaker]
    compat: Compat = Compat()
    rules: Callable[[Working], Rules] | None = None


class Session:
    """A round of decisions.

    dice: breaks ties between nodes; None takes the first. uid: names it in conditions. metrics:
    what takes time is noted there, by the names of the original.
    """

    def __init__(
        self,
        opened: Opened,
        options: SessionOptions,
        outside: Outside,
        uid: str,
        now: datetime.datetime | None = None,
        dice: np.random.Generator | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.options = options
        self.metrics = metrics or Metrics()
        self.compat = options.compat
        self.uid = uid
        self.now = now
        self.dice = dice
        self.hooks = Hooks(options.tiers, options.compat)
        self.working = Working(opened, self.hooks, options.compat, outside)
        self.arithmetic = self.working.arithmetic
        self.choices = Choices(self.working, self.hooks, dice)
        self.closing = Closing(self.working, uid, now)
        self.invalid: dict[str, Job] = {}
        self.complaints: dict[Hashable, str] = {}
        # What a turn came to that left no trace: the state of the nodes then, and what it said.
        self.stuck: dict[Hashable, tuple[int, str, dict[str, Amount]]] = {}
        self.policies: dict[str, Policy] = {}
        if options.rules is not None:
            self.working.rules = options.rules(self.working)
        for tier in options.tiers:
            for use in tier:
                if use.name in options.policies:
                    self.policies[use.name] = options.policies[use.name](use.arguments)
        for policy in self.policies.values():
            with_watch(self.metrics, policy, "OnSessionOpen", policy.on_open, self)
        if not self.compat.validates_before_tiers:
            self._validate()
        for policy in self.policies.values():
            policy.on_start(self)

    # What actions and policies read.

    @property
    def jobs(self) -> dict[str, Job]:
        """The jobs of the session by id."""
        return self.working.jobs

    @property
    def queues(self) -> Mapping[str, QueueInfo]:
        """The queues of the session by name."""
        return self.working.queues

    def statement(self) -> Statement:
        """A new statement."""
        return Statement(self.working)

    def has_pending(self, job: Job) -> bool:
        """True when some task of the job waits for a node."""
        return TaskStatus.PENDING in job.by_status

    # Steps without a statement.

    def allocate(self, task: Task, row: int) -> str:
        """Give a task free room, and bind what its job was given once that is ready."""
        wrong = self.working.put(task, row, TaskStatus.ALLOCATED)
        return wrong or self.working.bind_if_ready(self.jobs[task.job])

    def pipeline(self, task: Task, row: int) -> str:
        """Promise a task room that is being freed."""
        return self.working.put(task, row, TaskStatus.PIPELINED)

    def evict(self, task: Task, reason: str) -> str:
        """Have a task go, for good."""
        return self.working.send_eviction(task, reason) or self.working.release(task)

    # Choice.

    def passing(self, task: Task) -> NDArray[np.bool_]:
        """bool (n_nodes,): the nodes that policies let the task have."""
        there = self.working.nodes.there()
        rows = np.flatnonzero(there)
        there[rows] = self.hooks.passing(task, rows)
        return there

    def best(self, task: Task, rows: Ints) -> int:
        """The row with the highest score among `rows`, at least one; in doubt the first, or any
        when there are dice."""
        scores = self.hooks.scores(task, rows)
        if self.dice is None:
            return int(rows[np.argmax(scores)])
        top = rows[scores == scores.max()]
        return int(top[self.dice.integers(top.shape[0])])

    def ranked(self, task: Task, rows: Ints) -> Ints:
        """int64: `rows` by score, the highest first; among equals the last by name first."""
        scores = self.hooks.scores(task, rows)
        names = self.working.nodes.names
        order = sorted(range(rows.shape[0]), key=lambda i: (scores[i], names[rows[i]]))
        return rows[np.array(order[::-1], dtype=np.int64)]

    # Life.

    def run(self) -> None:
        """Run the actions in their order."""
        metrics = self.metrics
        for action in self.options.actions:
            began = metrics.stopwatch()
            action.run(self)
            took = (metrics.stopwatch() - began) * 1e6
            metrics.observe(ACTION_LATENCY, took, (("action", action.name),))

    def close(self) -> tuple[list[GroupWrite], list[PodNote]]:
        """Let policies finish and write down what became of the groups."""
        for policy in self.policies.values():
            with_watch(self.metrics, policy, "OnSessionClose", policy.on_close, self)
        result = self.closing.close([*self.jobs.values(), *self.invalid.values()])
        self.working.rules.close()
        return result

    def _validate(self) -> None:
        """Take out the jobs that some policy finds invalid; each is told why."""
        invalid = {
            uid: said
            for uid, job in self.jobs.items()
            if (said := self._refused(job) or self.hooks.job_invalid(job)) is not None
        }
        for uid, said in invalid.items():
            job = self.invalid[uid] = self.jobs.pop(uid)
            job.complaint = said.message
            self.closing.set_condition(job, said.reason, said.message)

    def _refused(self, job: Job) -> Invalid | None:
        """What is wrong with a job whatever policies say of it."""
        if job.min_available < 0:
            return Invalid(INVALID_GROUP, f"minMember is {job.min_available}, wanted 0 or more")
        queue = self.queues[job.queue]
        # A queue that is not open finishes what it has begun.
        if queue.is_open or job.ready_count:
            return None
        text = f"queue {queue.name!r} is {queue.state} and takes no new jobs"
        return Invalid(QUEUE_CLOSED, text)


def with_watch(
    metrics: Metrics, policy: Policy, moment: str, call: Callable[[Session], None], session: Session
) -> None:
    """Call a policy and note how long it took."""
    began = metrics.stopwatch()
    call(session)
    labels = (("plugin", policy.name), ("OnSession", moment))
    metrics.observe(POLICY_LATENCY, (metrics.stopwatch() - began) * 1e6, labels)


def tasks_of(job: Job, status: TaskStatus) -> Sequence[Task]:
    """The tasks of a job in a status, as they are now."""
    return list(job.of(status).values())
