"""Session: one round of decisions about all jobs, on the state as it was when it opened.

Policies register what they have to say, jobs that cannot be scheduled leave, actions run in the
configured order, and the close writes down what became of each group.

Source: kube-batch v0.5, framework/session.go, framework/framework.go.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan._deprecated import deprecated_property
from stowplan.batch.best_nodes import BestNodeCache
from stowplan.batch.compat import Compat
from stowplan.batch.hook_contracts import ValidateResult
from stowplan.batch.session_close import PodFitError, PodGroupStatusUpdate, SessionClose
from stowplan.batch.session_rules import SessionRules
from stowplan.batch.state.jobs import JobInfo, TaskInfo, TaskStatus
from stowplan.batch.state.queues import QueueInfo
from stowplan.batch.state.resource_vector import ResourceVector
from stowplan.batch.state.session_state import BinderEvictor, ClusterInfo, SessionState
from stowplan.batch.statement import Statement
from stowplan.batch.tiers import Hooks, Tiers
from stowplan.framework.metrics import Metrics
from stowplan.framework.problems import ContractError

NOT_ENOUGH_TASKS = "NotEnoughTasks"
QUEUE_CLOSED = "QueueClosed"
INVALID_GROUP = "InvalidPodGroup"
ACTION_LATENCY = "volcano_action_scheduling_latency_microseconds"
PLUGIN_LATENCY = "volcano_plugin_scheduling_latency_microseconds"

Ints = NDArray[np.int64]


class SessionPlugin:
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


class SessionAction:
    """Base of actions: one step of a session. name: as configurations have it."""

    name = ""

    def run(self, session: Session) -> None:
        """Act on the session. A job that is gone from `session.jobs` is not to be touched."""
        where = f"class {type(self).__module__}.{type(self).__qualname__}"
        raise ContractError(f"{where}: defines no run; wanted `def run(self, session)`")


SessionPluginFactory = Callable[[Mapping[str, str]], SessionPlugin]
"""A policy's class, or what makes one from its arguments."""


class SessionOptions(msgspec.Struct, frozen=True):
    """tiers, actions: as configured, known ones only. policies: name -> what makes it.

    rules: what gives the session's predicates and node scores; None: every node will do.
    """

    tiers: Tiers
    actions: tuple[SessionAction, ...]
    policies: Mapping[str, SessionPluginFactory]
    compat: Compat = Compat()
    rules: Callable[[SessionState], SessionRules] | None = None


class Session:
    """A round of decisions.

    dice: breaks ties between nodes; None takes the first. uid: names it in conditions. metrics:
    what takes time is noted there, by the names of the original.
    """

    def __init__(
        self,
        opened: ClusterInfo,
        options: SessionOptions,
        outside: BinderEvictor,
        uid: str,
        now: datetime.datetime | None = None,
        rng: np.random.Generator | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.options = options
        self.metrics = metrics or Metrics()
        self.compat = options.compat
        self.uid = uid
        self.now = now
        self.rng = rng
        self.hooks = Hooks(options.tiers, options.compat)
        self.state = SessionState(opened, self.hooks, options.compat, outside)
        self.arithmetic = self.state.arithmetic
        self.choices = BestNodeCache(self.state, self.hooks, rng)
        self.closing = SessionClose(self.state, uid, now)
        self.invalid: dict[str, JobInfo] = {}
        self.complaints: dict[Hashable, str] = {}
        # What a turn came to that left no trace: the state of the nodes then, and what it said.
        self.stuck: dict[Hashable, tuple[int, str, dict[str, ResourceVector]]] = {}
        self.policies: dict[str, SessionPlugin] = {}
        if options.rules is not None:
            self.state.rules = options.rules(self.state)
        for tier in options.tiers:
            for use in tier:
                if use.name in options.policies:
                    self.policies[use.name] = options.policies[use.name](use.arguments)
        for policy in self.policies.values():
            call_timed(self.metrics, policy, "OnSessionOpen", policy.on_open, self)
        if not self.compat.validates_before_tiers:
            self._validate()
        for policy in self.policies.values():
            policy.on_start(self)

    # What actions and policies read.

    working = deprecated_property("working", "state")

    @property
    def jobs(self) -> dict[str, JobInfo]:
        """The jobs of the session by id."""
        return self.state.jobs

    @property
    def queues(self) -> Mapping[str, QueueInfo]:
        """The queues of the session by name."""
        return self.state.queues

    def statement(self) -> Statement:
        """A new statement."""
        return Statement(self.state)

    def has_pending(self, job: JobInfo) -> bool:
        """True when some task of the job waits for a node."""
        return TaskStatus.PENDING in job.by_status

    # Steps without a statement.

    def allocate(self, task: TaskInfo, row: int) -> str:
        """Give a task free room, and bind what its job was given once that is ready."""
        problem = self.state.put(task, row, TaskStatus.ALLOCATED)
        return problem or self.state.bind_if_ready(self.jobs[task.job])

    def pipeline(self, task: TaskInfo, row: int) -> str:
        """Promise a task room that is being freed."""
        return self.state.put(task, row, TaskStatus.PIPELINED)

    def evict(self, task: TaskInfo, reason: str) -> str:
        """Have a task go, for good."""
        return self.state.send_eviction(task, reason) or self.state.release(task)

    # Choice.

    def passing(self, task: TaskInfo) -> NDArray[np.bool_]:
        """bool (n_nodes,): the nodes that policies let the task have."""
        there = self.state.nodes.there()
        rows = np.flatnonzero(there)
        there[rows] = self.hooks.passing(task, rows)
        return there

    def best(self, task: TaskInfo, rows: Ints) -> int:
        """The row with the highest score among `rows`, at least one; in doubt the first, or any
        when there are dice."""
        scores = self.hooks.scores(task, rows)
        if self.rng is None:
            return int(rows[np.argmax(scores)])
        top = rows[scores == scores.max()]
        return int(top[self.rng.integers(top.shape[0])])

    def ranked(self, task: TaskInfo, rows: Ints) -> Ints:
        """int64: `rows` by score, the highest first; among equals the last by name first."""
        scores = self.hooks.scores(task, rows)
        names = self.state.nodes.names
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

    def close(self) -> tuple[list[PodGroupStatusUpdate], list[PodFitError]]:
        """Let policies finish and write down what became of the groups."""
        for policy in self.policies.values():
            call_timed(self.metrics, policy, "OnSessionClose", policy.on_close, self)
        result = self.closing.close([*self.jobs.values(), *self.invalid.values()])
        self.state.rules.close()
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
            job.fit_errors = said.message
            self.closing.set_condition(job, said.reason, said.message)

    def _refused(self, job: JobInfo) -> ValidateResult | None:
        """What is wrong with a job whatever policies say of it."""
        if job.min_available < 0:
            return ValidateResult(
                INVALID_GROUP, f"minMember is {job.min_available}, wanted 0 or more"
            )
        queue = self.queues[job.queue]
        # A queue that is not open finishes what it has begun.
        if queue.is_open or job.ready_count:
            return None
        text = f"queue {queue.name!r} is {queue.state} and takes no new jobs"
        return ValidateResult(QUEUE_CLOSED, text)


def call_timed(
    metrics: Metrics,
    policy: SessionPlugin,
    moment: str,
    call: Callable[[Session], None],
    session: Session,
) -> None:
    """Call a policy and note how long it took."""
    began = metrics.stopwatch()
    call(session)
    labels = (("plugin", policy.name), ("OnSession", moment))
    metrics.observe(PLUGIN_LATENCY, (metrics.stopwatch() - began) * 1e6, labels)
