"""check_session_plugin(): checks of the contract of session plugins and actions.

    from stowplan.testing import check_session_plugin, session_plugin_checks

    def test_my_policy():
        check_session_plugin(MyPolicy)

    @pytest.mark.parametrize("check", session_plugin_checks(MyPolicy))   # or one test per check
    def test_my_policy(check):
        check()

Each check generates clusters from fixed seeds and opens sessions with the plugin alone; actions run
with the in-tree session plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import permutations, product
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stowplan.assembly.sessions.session_config import (
    batch_configuration,
    rules_for,
    session_options,
)
from stowplan.batch import Session, SessionAction, SessionOptions, SessionPlugin
from stowplan.batch.hook_contracts import HOOK_KINDS, ValidateResult
from stowplan.batch.state.jobs import TaskInfo
from stowplan.batch.state.task_requests import EPSILON, node_allocatable_of
from stowplan.batch.tiers import SessionPluginUse
from stowplan.framework.deciders.resource_vector import ResourceVector
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.testing.check_plugin import CheckFailed
from stowplan.testing.generators.session_clusters import generate_session_cluster

SESSION_SEEDS = range(8)
ORDER_HOOKS = ("job_order", "queue_order", "task_order")
VICTIM_HOOKS = ("preemptable", "reclaimable")
BOOLEAN_HOOKS = ("overused", "job_ready", "job_pipelined")
COMPARED_MAX = 7
"""Maximum number of items whose triples are all compared."""


class SessionPluginTrial:
    """A generated cluster, and a session on it with the session plugin alone."""

    def __init__(
        self, policy: type[SessionPlugin], arguments: Mapping[str, str], seed: int
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.name = policy.name
        use = SessionPluginUse(policy.name, arguments=arguments)
        options = SessionOptions(((use,),), (), {policy.name: policy}, rules=rules_for())
        self.inventory = generate_session_cluster(self.rng)
        self.session = Session(self.inventory.open(), options, self.inventory, "session-1")
        self.hooks = self.session.hooks
        self.rows = np.arange(self.session.state.nodes.n_nodes)

    def function(self, kind: str) -> Any:
        """The plugin's function of a kind, None where it has none."""
        return next(iter(self.hooks.walk(kind)), None)  # type: ignore[arg-type]

    def tasks(self, status: TaskStatus) -> list[TaskInfo]:
        """The tasks of all jobs in a status, by uid."""
        found = (t for job in self.session.jobs.values() for t in job.of(status).values())
        return sorted(found, key=lambda task: task.uid)

    def compared(self, kind: str) -> list[Any]:
        """Items that an order of this kind compares."""
        things: dict[str, list[Any]] = {
            "job_order": list(self.session.jobs.values()),
            # A queue without jobs is not part of a session.
            "queue_order": [
                self.session.queues[name]
                for name in dict.fromkeys(job.queue for job in self.session.jobs.values())
            ],
            "task_order": self.tasks(TaskStatus.PENDING),
        }
        return things[kind][:COMPARED_MAX]

    def candidates(self, kind: str, task: TaskInfo) -> list[TaskInfo]:
        """Possible victims of a task: running tasks of other jobs, or of other queues."""
        jobs = self.session.jobs
        queue = jobs[task.job].queue
        return [
            other
            for other in self.tasks(TaskStatus.RUNNING)
            if (jobs[other.job].queue == queue) == (kind == "preemptable") and other.job != task.job
        ]


class SessionPluginCheck:
    """One check of one session plugin; call it to run it.

    `__name__` names both, for test ids.
    """

    def __init__(
        self,
        name: str,
        policy: type[SessionPlugin] | type[SessionAction],
        arguments: Mapping[str, str],
        seeds: Iterable[int],
    ) -> None:
        """policy: a session plugin or an action."""
        self.name = name
        self.__name__ = f"{policy.name}-{name}"
        self._policy = policy
        self._arguments = arguments
        self._seeds = tuple(seeds)

    def __repr__(self) -> str:
        return self.__name__

    def __call__(self) -> None:
        """Raise CheckFailed when the plugin fails the check for one of the seeds."""
        for seed in self._seeds:
            try:
                details = next(self._findings(seed), "")
            # Any exception of a third-party plugin is a finding for its author.
            except Exception as raised:
                details = f"raised {type(raised).__name__}: {raised}"
                raise CheckFailed(self._policy.name, self.name, seed, details) from raised
            if details:
                raise CheckFailed(self._policy.name, self.name, seed, details)

    def _findings(self, seed: int) -> Iterator[str]:
        if issubclass(self._policy, SessionAction):
            return ACTION_CHECKS[self.name](self._policy, seed)
        return SESSION_PLUGIN_CHECKS[self.name](
            SessionPluginTrial(self._policy, self._arguments, seed)
        )


def check_session_plugin(
    policy: type[SessionPlugin] | type[SessionAction],
    arguments: Mapping[str, str] | None = None,
    *,
    seeds: Iterable[int] = SESSION_SEEDS,
) -> None:
    """Run every check of a session plugin or action; raises CheckFailed at the first that fails.

    arguments: texts, as a configuration has them.
    """
    for check in session_plugin_checks(policy, arguments, seeds=seeds):
        check()


def session_plugin_checks(
    policy: type[SessionPlugin] | type[SessionAction],
    arguments: Mapping[str, str] | None = None,
    *,
    seeds: Iterable[int] = SESSION_SEEDS,
) -> list[SessionPluginCheck]:
    """The checks of a session plugin or an action, to run one by one."""
    kept = tuple(seeds)
    names = ACTION_CHECKS if issubclass(policy, SessionAction) else SESSION_PLUGIN_CHECKS
    return [SessionPluginCheck(name, policy, arguments or {}, kept) for name in names]


# The checks: each yields what is wrong.


def _registers_known_hooks(trial: SessionPluginTrial) -> Iterator[str]:
    given = trial.hooks._given
    for kind, name in given:
        if kind not in HOOK_KINDS:
            yield f"registered {kind!r}; expected one of {', '.join(HOOK_KINDS)}"
        if name != trial.name:
            yield f"registered {kind} under {name!r}; expected its own name"
    is_deaf = not given and not trial.session.state.handlers
    policy = type(trial.session.plugins[trial.name])
    if (
        is_deaf
        and policy.on_close is SessionPlugin.on_close
        and policy.on_start is SessionPlugin.on_start
    ):
        yield "registered nothing, so it is never called"


def _orders_are_strict(trial: SessionPluginTrial) -> Iterator[str]:
    for kind in ORDER_HOOKS:
        compare = trial.function(kind)
        if compare is None:
            continue
        things = trial.compared(kind)
        for a, b in product(things, things):
            one, other = compare(a, b), compare(b, a)
            if isinstance(one, bool) or not isinstance(one, int | float):
                yield f"{kind}({a}, {b}) is {one!r}; expected a number below, above or 0"
            if (a is b and one) or _sign(one) != -_sign(other):
                yield f"{kind}({a}, {b}) is {one} and reversed {other}; expected opposite signs"
        for a, b, c in permutations(things, 3):
            if compare(a, b) < 0 and compare(b, c) < 0 and compare(a, c) >= 0:
                yield f"{kind}: {a} before {b} before {c}, but not {a} before {c}"
        yield from _keys_agree(trial, kind, compare, things)


def _keys_agree(
    trial: SessionPluginTrial, kind: str, compare: Callable[[Any, Any], int], things: list[Any]
) -> Iterator[str]:
    key = trial.hooks._keys.get((kind, trial.name))
    if key is None:
        return
    for a, b in product(things, things):
        by_key = (key(a) > key(b)) - (key(a) < key(b))
        if by_key != _sign(compare(a, b)):
            yield f"{kind}({a}, {b}) is {compare(a, b)}, but the keys are {key(a)} and {key(b)}"


def _victims_are_candidates(trial: SessionPluginTrial) -> Iterator[str]:
    for kind in VICTIM_HOOKS:
        function = trial.function(kind)
        if function is None:
            continue
        spares = trial.hooks._spares[kind, trial.name]
        for task in trial.tasks(TaskStatus.PENDING):
            given = trial.candidates(kind, task)
            asked = list(given)
            answer = function(task, asked)
            uids = [victim.uid for victim in answer]
            if asked != given:
                yield f"{kind} changed the list of candidates"
            if not set(uids) <= {other.uid for other in given}:
                yield f"{kind}({task}) names {uids}; expected some of the candidates"
            if len(set(uids)) < len(uids):
                yield f"{kind}({task}) names a task twice: {uids}"
            for victim in answer:
                job = trial.session.jobs[victim.job]
                if spares is not None and spares(job):
                    yield f"{kind}({task}) names {victim}, though {job} is spared"


def _boolean_hooks_return_bool(trial: SessionPluginTrial) -> Iterator[str]:
    jobs, queues = trial.compared("job_order"), trial.compared("queue_order")
    for kind in BOOLEAN_HOOKS:
        function = trial.function(kind)
        for thing in (queues if kind == "overused" else jobs) if function is not None else ():
            answer = function(thing)
            if not isinstance(answer, bool | np.bool_):
                yield f"{kind}({thing}) is {answer!r}; expected True or False"
    valid = trial.function("job_valid")
    for job in jobs if valid is not None else ():
        answer = valid(job)
        if answer is not None and not (isinstance(answer, ValidateResult) and answer.reason):
            yield f"job_valid({job}) is {answer!r}; expected None or Invalid with a reason"


def _nodes_are_evaluated_row_by_row(trial: SessionPluginTrial) -> Iterator[str]:
    for kind in ("predicate", "node_order"):
        function = trial.function(kind)
        if function is None:
            continue
        for task in trial.tasks(TaskStatus.PENDING)[:COMPARED_MAX]:
            rows = trial.rows.copy()
            answer = function(task, rows)
            if not np.array_equal(rows, trial.rows):
                yield f"{kind}({task}) changed the rows"
            yield from _shape(kind, task, answer, trial.rows)
            turned = function(task, trial.rows[::-1].copy())
            if not np.array_equal(turned[::-1], answer):
                yield f"{kind}({task}) is {answer} for the rows and {turned} for them reversed"
            row_kind = trial.hooks._row_kinds[kind, trial.name](task)
            if row_kind is None and kind == "node_order":
                continue
            single = [function(task, trial.rows[row : row + 1])[0] for row in trial.rows]
            if not np.array_equal(np.array(single), answer):
                yield f"{kind}({task}) is {answer} for all rows and {single} for each alone"


def _shape(kind: str, task: TaskInfo, answer: Any, rows: NDArray[Any]) -> Iterator[str]:
    wanted = np.bool_ if kind == "predicate" else np.number
    if not isinstance(answer, np.ndarray) or answer.shape != rows.shape:
        yield f"{kind}({task}) is {answer!r}; expected an array of {rows.shape[0]}"
    elif not np.issubdtype(answer.dtype, wanted):
        yield f"{kind}({task}) is an array of {answer.dtype}; expected {wanted.__name__}"
    elif kind == "node_order" and not np.isfinite(answer).all():
        yield f"{kind}({task}) is {answer}; expected finite numbers"


def _equal_tasks_get_equal_answers(trial: SessionPluginTrial) -> Iterator[str]:
    for kind in ("predicate", "node_order"):
        function = trial.function(kind)
        first: dict[Any, tuple[TaskInfo, Any]] = {}
        for task in trial.tasks(TaskStatus.PENDING) if function is not None else ():
            row_kind = trial.hooks._row_kinds[kind, trial.name](task)
            if row_kind is None:
                continue
            answer = function(task, trial.rows.copy())
            other, before = first.setdefault(row_kind, (task, answer))
            if not np.array_equal(answer, before):
                yield f"{kind}: {task} and {other} share a row_kind, but get {answer} and {before}"


def _calls_have_no_side_effects(trial: SessionPluginTrial) -> Iterator[str]:
    before = _state(trial)
    first = _answers(trial)
    if _state(trial) != before:
        yield "a call changed jobs, tasks or nodes"
    for what, answer in _answers(trial).items():
        if answer != first[what]:
            yield f"{what} is {first[what]}, and {answer} on the second call"


def _discarded_statements_leave_no_trace(trial: SessionPluginTrial) -> Iterator[str]:
    before = _answers(trial)
    statement = trial.session.statement()
    nodes = trial.session.state.nodes
    for task in trial.tasks(TaskStatus.RUNNING)[::2]:
        statement.evict(task, "check")
    for task in trial.tasks(TaskStatus.PENDING)[:COMPARED_MAX]:
        rows = np.flatnonzero(nodes.fits_idle(task))
        if rows.shape[0]:
            statement.allocate(task, int(rows[0]))
    statement.rollback()
    for what, answer in _answers(trial).items():
        if answer != before[what]:
            yield f"{what} is {answer} after a discarded statement; expected {before[what]}"


def _sessions_are_independent(trial: SessionPluginTrial) -> Iterator[str]:
    first = _answers(trial)
    trial.session.close()
    policy = type(trial.session.plugins[trial.name])
    arguments = trial.session.plugins[trial.name].arguments
    seed = int(trial.rng.integers(1 << 30))
    SessionPluginTrial(policy, arguments, seed).session.close()
    options = trial.session.options
    trial.session = Session(trial.inventory.open(), options, trial.inventory, "session-2")
    trial.hooks = trial.session.hooks
    for what, answer in _answers(trial).items():
        if answer != first[what]:
            yield f"{what} is {answer} after another session; expected {first[what]}"


SESSION_PLUGIN_CHECKS: Mapping[str, Callable[[SessionPluginTrial], Iterator[str]]] = {
    "registers_known_hooks": _registers_known_hooks,
    "orders_are_strict": _orders_are_strict,
    "victims_are_candidates": _victims_are_candidates,
    "boolean_hooks_return_bool": _boolean_hooks_return_bool,
    "nodes_are_evaluated_row_by_row": _nodes_are_evaluated_row_by_row,
    "equal_tasks_get_equal_answers": _equal_tasks_get_equal_answers,
    "calls_have_no_side_effects": _calls_have_no_side_effects,
    "discarded_statements_leave_no_trace": _discarded_statements_leave_no_trace,
    "sessions_are_independent": _sessions_are_independent,
}
"""Name -> check."""


def _job_and_node_ledgers_agree(action: type[SessionAction], seed: int) -> Iterator[str]:
    """After the action, with the in-tree session plugins, jobs and nodes agree on each task."""
    rng = np.random.default_rng(seed)
    inventory = generate_session_cluster(rng)
    configuration = batch_configuration(None, "default")
    options = session_options(configuration, rules_for())
    options = replace(options, actions=(action(),))
    session = Session(inventory.open(), options, inventory, "session-1")
    session.run()
    nodes = session.state.nodes
    for row, name in enumerate(nodes.names):
        taken = ResourceVector()
        for held in nodes.tasks_on(row):
            task = held.task
            if task.node != name:
                yield f"{task} has the node {task.node!r}, and {name} has the task"
            if held.status is not TaskStatus.PIPELINED:
                taken.add(task.ask.running)
        there = node_allocatable_of(nodes.nodes[row].status.allocatable)
        for resource, offered in there.pairs():
            left = float(nodes.idle.get(resource, nodes.n_nodes)[row])
            if abs(offered - taken.get(resource) - left) > EPSILON:
                have = f"{offered} {resource}, {taken.get(resource)} taken"
                yield f"{name} has {have} and {left} idle: they do not add up"
            if left < -EPSILON:
                yield f"{name} was given {-left} {resource} more than it has"


ACTION_CHECKS: Mapping[str, Callable[[type[SessionAction], int], Iterator[str]]] = {
    "job_and_node_ledgers_agree": _job_and_node_ledgers_agree
}
"""Name -> check of actions."""


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


def _answers(trial: SessionPluginTrial) -> dict[str, Any]:
    """All answers of the plugin, by the call as text."""
    answer: dict[str, Any] = {}
    for kind in HOOK_KINDS:
        function = trial.function(kind)
        if function is not None:
            answer |= dict(_answers_of(trial, kind, function))
    return answer


def _answers_of(trial: SessionPluginTrial, kind: str, function: Any) -> Iterator[tuple[str, Any]]:
    if kind in ORDER_HOOKS:
        for a, b in permutations(trial.compared(kind), 2):
            yield f"{kind}({a}, {b})", _sign(function(a, b))
    elif kind in ("predicate", "node_order"):
        for task in trial.tasks(TaskStatus.PENDING)[:COMPARED_MAX]:
            yield f"{kind}({task.key})", np.asarray(function(task, trial.rows.copy())).tolist()
    elif kind in VICTIM_HOOKS:
        for task in trial.tasks(TaskStatus.PENDING)[:COMPARED_MAX]:
            victims = function(task, trial.candidates(kind, task))
            yield f"{kind}({task.key})", [victim.uid for victim in victims]
    else:
        for thing in trial.compared("queue_order" if kind == "overused" else "job_order"):
            yield f"{kind}({thing})", function(thing)


def _state(trial: SessionPluginTrial) -> Any:
    nodes = trial.session.state.nodes
    jobs = {
        uid: sorted((t.uid, t.status, t.node) for t in job.tasks.values())
        for uid, job in trial.session.jobs.items()
    }
    columns = (nodes.idle, nodes.used, nodes.releasing)
    amounts = [column.amount(row).pairs() for column in columns for row in range(nodes.n_nodes)]
    return jobs, amounts
