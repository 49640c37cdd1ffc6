"""Session: one round of decisions about all jobs, on the state at its opening.

Session plugins register functions, invalid jobs are taken out, actions run in configured order, and
the close computes the status of each group.

Source: kube-batch v0.5, framework/session.go, framework/framework.go.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Mapping
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan._deprecated import RenamedFields, deprecated_property
from stowplan.batch.best_nodes import BestNodeCache
from stowplan.batch.hook_contracts import ValidateResult
from stowplan.batch.session_close import PodFitError, PodGroupStatusUpdate, SessionClose
from stowplan.batch.session_rules import SessionRules
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.queues import QueueInfo
from stowplan.batch.state.session_state import BinderEvictor, ClusterInfo, SessionState
from stowplan.batch.statement import Statement
from stowplan.batch.tiers import Hooks, Tiers
from stowplan.columns.array_types import Ints
from stowplan.framework.deciders.resource_vector import ResourceVector
from stowplan.framework.deciders.session_metrics import ACTION_LATENCY, PLUGIN_LATENCY
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.framework.metrics import Metrics
from stowplan.framework.problems import ContractError

NOT_ENOUGH_TASKS = "NotEnoughTasks"
QUEUE_CLOSED = "QueueClosed"
INVALID_GROUP = "InvalidPodGroup"


class SessionPlugin:
    """Base of session plugins; a subclass overrides what it needs. name: as in configurations."""

    name = ""

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self.arguments = arguments

    def on_open(self, session: Session) -> None:
        """Register functions. All jobs are present, including those that will be found invalid."""

    def on_start(self, session: Session) -> None:
        """Invalid jobs have been moved to `session.invalid`; shares can be computed."""

    def on_close(self, session: Session) -> None:
        """All actions have run."""


class SessionAction:
    """Base of actions: one step of a session. name: as in configurations."""

    name = ""

    def configure(self, arguments: Mapping[str, str]) -> None:
        """Take the arguments of the configuration, once, before the first session."""

    def run(self, session: Session) -> None:
        """Act on the session. Jobs that are no longer in `session.jobs` must not be touched."""
        where = f"class {type(self).__module__}.{type(self).__qualname__}"
        raise ContractError(f"{where}: method run is missing: expected `def run(self, session)`")


SessionPluginFactory = Callable[[Mapping[str, str]], SessionPlugin]
"""A session plugin's class, or another factory that takes its arguments."""


class SessionOptions(msgspec.Struct, frozen=True, metaclass=RenamedFields):
    """Options of a session.

    tiers, actions: as configured; all names are known. plugins: name -> factory of the session
    plugin. rules: factory of predicates and node scores; None: every node passes.
    """

    OLD_FIELDS: ClassVar[Mapping[str, str]] = {"policies": "plugins"}

    tiers: Tiers
    actions: tuple[SessionAction, ...]
    plugins: Mapping[str, SessionPluginFactory]
    rules: Callable[[SessionState], SessionRules] | None = None

    policies = deprecated_property("policies", "plugins")


class Session:
    """A round of decisions.

    rng: breaks ties between nodes; None takes the first. uid: identifies the session in conditions.
    metrics: receives durations under the original's names.
    """

    def __init__(
        self,
        cluster_info: ClusterInfo,
        options: SessionOptions,
        binder_evictor: BinderEvictor,
        uid: str,
        now: datetime.datetime | None = None,
        rng: np.random.Generator | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.options = options
        self.metrics = metrics or Metrics()
        self.uid = uid
        self.now = now
        self.rng = rng
        self.hooks = Hooks(options.tiers)
        self.state = SessionState(cluster_info, self.hooks, binder_evictor)
        self.best_nodes = BestNodeCache(self.state, self.hooks, rng)
        self.session_close = SessionClose(self.state, uid, now)
        self.invalid: dict[str, JobInfo] = {}
        self.fit_error_texts: dict[Hashable, str] = {}
        # Turns that failed without side effects: the node revision at that time, and the result.
        self.failed_turns: dict[Hashable, tuple[int, str, dict[str, ResourceVector]]] = {}
        self.plugins: dict[str, SessionPlugin] = {}
        if options.rules is not None:
            self.state.rules = options.rules(self.state)
        for tier in options.tiers:
            for use in tier:
                if use.name in options.plugins:
                    self.plugins[use.name] = options.plugins[use.name](use.arguments)
        for plugin in self.plugins.values():
            call_timed(self.metrics, plugin, "OnSessionOpen", plugin.on_open, self)
        self._validate()
        for plugin in self.plugins.values():
            plugin.on_start(self)

    # Read by actions and session plugins.

    working = deprecated_property("working", "state")
    policies = deprecated_property("policies", "plugins")
    dice = deprecated_property("dice", "rng")
    choices = deprecated_property("choices", "best_nodes")
    complaints = deprecated_property("complaints", "fit_error_texts")
    stuck = deprecated_property("stuck", "failed_turns")

    @property
    def jobs(self) -> dict[str, JobInfo]:
        """Jobs of the session, by id."""
        return self.state.jobs

    @property
    def queues(self) -> Mapping[str, QueueInfo]:
        """Queues of the session, by name."""
        return self.state.queues

    def statement(self) -> Statement:
        """Create a statement."""
        return Statement(self.state)

    def has_pending(self, job: JobInfo) -> bool:
        """True if a task of the job waits for a node."""
        return TaskStatus.PENDING in job.by_status

    def is_ready(self, job: str) -> bool:
        """True if a job, by uid, may start."""
        known = self.jobs.get(job) or self.invalid.get(job)
        return known is not None and self.hooks.job_ready(known)

    def is_pipelined(self, job: str) -> bool:
        """True if a job, by uid, can start once resources are freed."""
        known = self.jobs.get(job) or self.invalid.get(job)
        return known is not None and self.hooks.job_pipelined(known)

    def is_overused(self, queue: str) -> bool:
        """True if a session plugin finds the queue overused."""
        return self.hooks.overused(self.queues[queue])

    # Steps without a statement.

    def allocate(self, task: TaskInfo, row: int) -> str:
        """Place a task on idle resources; bind the job's allocated tasks once the job is ready."""
        problem = self.state.put(task, row, TaskStatus.ALLOCATED)
        if not problem:
            self.state.bind_if_ready(self.jobs[task.job])
        return problem

    def pipeline(self, task: TaskInfo, row: int) -> str:
        """Pipeline a task onto resources that are being released."""
        return self.state.put(task, row, TaskStatus.PIPELINED)

    def evict(self, task: TaskInfo, reason: str) -> str:
        """Evict a task, without rollback."""
        self.state.send_eviction(task, reason)
        return self.state.release(task)

    # Node selection.

    def passing(self, task: TaskInfo) -> NDArray[np.bool_]:
        """bool (n_nodes,): nodes that pass all session plugins for the task."""
        there = self.state.nodes.has_ready_nodes()
        rows = np.flatnonzero(there)
        there[rows] = self.hooks.passing(task, rows)
        return there

    def best(self, task: TaskInfo, rows: Ints) -> int:
        """The row with the highest score among `rows` (at least one); ties go to the first, or to a
        random one with an rng."""
        scores = self.hooks.scores(task, rows)
        if self.rng is None:
            return int(rows[np.argmax(scores)])
        top = rows[scores == scores.max()]
        return int(top[self.rng.integers(top.shape[0])])

    def ranked(self, task: TaskInfo, rows: Ints) -> Ints:
        """int64: `rows` by descending score; among equals the last by name first."""
        scores = self.hooks.scores(task, rows)
        names = self.state.nodes.names
        order = sorted(range(rows.shape[0]), key=lambda i: (scores[i], names[rows[i]]))
        return rows[np.array(order[::-1], dtype=np.int64)]

    # Running and closing.

    def run(self) -> None:
        """Run the actions in order."""
        metrics = self.metrics
        for action in self.options.actions:
            began = metrics.stopwatch()
            action.run(self)
            took = (metrics.stopwatch() - began) * 1e6
            metrics.observe(ACTION_LATENCY, took, (("action", action.name),))

    def close(self) -> tuple[list[PodGroupStatusUpdate], list[PodFitError]]:
        """Run on_close of the session plugins and compute the status of the groups."""
        for plugin in self.plugins.values():
            call_timed(self.metrics, plugin, "OnSessionClose", plugin.on_close, self)
        return self.session_close.close([*self.jobs.values(), *self.invalid.values()])

    def _validate(self) -> None:
        """Take out the jobs that a session plugin finds invalid and set their conditions."""
        invalid = {
            uid: problem
            for uid, job in self.jobs.items()
            if (problem := self._refused(job) or self.hooks.job_invalid(job)) is not None
        }
        for uid, problem in invalid.items():
            job = self.invalid[uid] = self.jobs.pop(uid)
            job.fit_errors = problem.message
            self.session_close.set_condition(job, problem.reason, problem.message)

    def _refused(self, job: JobInfo) -> ValidateResult | None:
        """Why a job is invalid regardless of session plugins."""
        if job.min_available < 0:
            text = f"Invalid value: {job.min_available}: must be greater than or equal to 0"
            return ValidateResult(INVALID_GROUP, f"spec.minMember: {text}")
        queue = self.queues[job.queue]
        # A closed queue finishes the jobs that it has begun.
        if queue.is_open or job.ready_count:
            return None
        text = f"queue {queue.name!r} is {queue.state} and accepts no new jobs"
        return ValidateResult(QUEUE_CLOSED, text)


def call_timed(
    metrics: Metrics,
    plugin: SessionPlugin,
    moment: str,
    call: Callable[[Session], None],
    session: Session,
) -> None:
    """Call a session plugin and record the duration."""
    began = metrics.stopwatch()
    call(session)
    labels = (("plugin", plugin.name), ("OnSession", moment))
    metrics.observe(PLUGIN_LATENCY, (metrics.stopwatch() - began) * 1e6, labels)
