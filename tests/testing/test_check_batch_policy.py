"""check_batch_policy: the policies that ship pass, and realistic mistakes are caught."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stowplan.assembly.sessions.session_config import ACTIONS, SESSION_PLUGINS
from stowplan.batch import Session, SessionAction, SessionPlugin
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.session_state import TaskEventHandlers
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.testing import (
    CheckFailed,
    SessionPluginCheck,
    check_session_plugin,
    session_plugin_checks,
)


@pytest.mark.parametrize(
    "check",
    [
        c
        for part in (*SESSION_PLUGINS.values(), *ACTIONS.values())
        for c in session_plugin_checks(part)
    ],
    ids=repr,
)
def test_what_ships_passes(check: SessionPluginCheck) -> None:
    check()


class Mine(SessionPlugin):
    """Sound: older jobs first, any victim, every node."""

    name = "mine"

    def on_open(self, session: Session) -> None:
        hooks = session.hooks
        self.session = session
        hooks.register("job_order", self.name, self.order)
        hooks.register("task_order", self.name, self.tasks, key=lambda task: task.uid)
        hooks.register("preemptable", self.name, self.victims, spares=self.spares)
        hooks.register("predicate", self.name, self.passing, row_kind=lambda task: task.kind)
        hooks.register("node_order", self.name, self.scores)
        hooks.register("job_ready", self.name, self.ready)

    def order(self, first: JobInfo, second: JobInfo) -> int:
        return (first.created > second.created) - (first.created < second.created)

    def tasks(self, first: TaskInfo, second: TaskInfo) -> int:
        return (first.uid > second.uid) - (first.uid < second.uid)

    def victims(self, task: TaskInfo, candidates: Sequence[TaskInfo]) -> list[TaskInfo]:
        return [other for other in candidates if not self.spares(self.session.jobs[other.job])]

    def spares(self, job: JobInfo) -> bool:
        return job.min_available > 2

    def passing(self, task: TaskInfo, rows: Any) -> Any:
        return np.ones(rows.shape[0], dtype=np.bool_)

    def scores(self, task: TaskInfo, rows: Any) -> Any:
        return rows.astype(np.float64)

    def ready(self, job: JobInfo) -> bool:
        return job.is_ready


class OrdersByTruth(Mine):
    """Answers whether the first goes first, as a key function would."""

    def order(self, first: JobInfo, second: JobInfo) -> int:
        return first.created < second.created


class AlwaysFirst(Mine):
    """Says of equals that the first goes first."""

    def order(self, first: JobInfo, second: JobInfo) -> int:
        return -1 if first.priority >= second.priority else 1


class KeyOfAnotherOrder(Mine):
    """The order was reversed, its key was not."""

    def tasks(self, first: TaskInfo, second: TaskInfo) -> int:
        return (first.uid < second.uid) - (first.uid > second.uid)


class PopsCandidates(Mine):
    """Takes victims out of the list that it was given."""

    def victims(self, task: TaskInfo, candidates: Sequence[TaskInfo]) -> list[TaskInfo]:
        assert isinstance(candidates, list)
        return [candidates.pop() for _ in range(len(candidates) // 2)]


class LetsThePreemptorGo(Mine):
    """Names the one that room is for."""

    def victims(self, task: TaskInfo, candidates: Sequence[TaskInfo]) -> list[TaskInfo]:
        return [task, *candidates]


class SparesAndTakes(Mine):
    """What it says of jobs is not what it says of tasks."""

    def victims(self, task: TaskInfo, candidates: Sequence[TaskInfo]) -> list[TaskInfo]:
        return list(candidates)


class NoReadiness(Mine):
    """Forgets to return."""

    def ready(self, job: JobInfo) -> bool:
        job.is_ready  # noqa: B018
        return None  # type: ignore[return-value]


class OneVerdictForAll(Mine):
    """Answers for the task, not for each node."""

    def passing(self, task: TaskInfo, rows: Any) -> Any:
        return True


class ScoresByPlace(Mine):
    """Takes a place in `rows` for a row."""

    def scores(self, task: TaskInfo, rows: Any) -> Any:
        return np.arange(rows.shape[0], dtype=np.float64)


class KeepsForAll(Mine):
    """Says that the answer is the same for all tasks, which it is not."""

    def on_open(self, session: Session) -> None:
        session.hooks.register("predicate", self.name, self.passing, row_kind=lambda task: 1)

    def passing(self, task: TaskInfo, rows: Any) -> Any:
        return np.full(rows.shape[0], task.priority > 1, dtype=np.bool_)


class CountsQuestions(Mine):
    """Takes turns by how often it was asked."""

    asked = 0

    def order(self, first: JobInfo, second: JobInfo) -> int:
        self.asked += 1
        sign = 1 if self.asked > 60 else -1
        return sign * super().order(first, second)


class NeverGivesBack(Mine):
    """Hears of what is given, and not of what is given back."""

    def on_open(self, session: Session) -> None:
        self.given: dict[str, int] = {}
        session.hooks.register("job_order", self.name, self.order)
        session.state.handlers.append(TaskEventHandlers(self._given, lambda task: None))

    def _given(self, task: TaskInfo) -> None:
        self.given[task.job] = self.given.get(task.job, 0) + 1

    def order(self, first: JobInfo, second: JobInfo) -> int:
        return self.given.get(first.uid, 0) - self.given.get(second.uid, 0)


class RemembersForEver(Mine):
    """Counts in the class what should be counted per session."""

    seen: dict[str, int] = {}

    def on_open(self, session: Session) -> None:
        session.hooks.register("job_order", self.name, self.order)
        for uid, job in session.jobs.items():
            self.seen[uid] = self.seen.get(uid, 0) + len(job.tasks)

    def order(self, first: JobInfo, second: JobInfo) -> int:
        return self.seen[first.uid] - self.seen[second.uid]


class Nameless(Mine):
    """Registers under the name that it was copied from."""

    def on_open(self, session: Session) -> None:
        session.hooks.register("job_order", "gang", self.order)


class WrongKind(Mine):
    """Registers under kube-batch's name of the kind."""

    def on_open(self, session: Session) -> None:
        session.hooks.register("jobOrder", self.name, self.order)  # type: ignore[arg-type]


def test_a_sound_policy_passes() -> None:
    check_session_plugin(Mine)


@pytest.mark.parametrize(
    ("policy", "caught_by", "message"),
    [
        (OrdersByTruth, "orders_are_strict", "a number below, above or"),
        (AlwaysFirst, "orders_are_strict", "expected opposite signs"),
        (KeyOfAnotherOrder, "orders_are_strict", "the keys are"),
        (PopsCandidates, "victims_are_candidates", "changed the list"),
        (LetsThePreemptorGo, "victims_are_candidates", "some of the candidates"),
        (SparesAndTakes, "victims_are_candidates", "is spared"),
        (NoReadiness, "boolean_hooks_return_bool", "True or False"),
        (OneVerdictForAll, "nodes_are_evaluated_row_by_row", "an array of bool"),
        (ScoresByPlace, "nodes_are_evaluated_row_by_row", "reversed"),
        (KeepsForAll, "equal_tasks_get_equal_answers", "share a row_kind"),
        (CountsQuestions, "calls_have_no_side_effects", "on the second call"),
        (NeverGivesBack, "discarded_statements_leave_no_trace", "after a discarded statement"),
        (RemembersForEver, "sessions_are_independent", "another session"),
        (Nameless, "registers_known_hooks", "name"),
        (WrongKind, "registers_known_hooks", "(did you mean 'job_order'?)"),
    ],
)
def test_a_mistake_is_caught(policy: type[SessionPlugin], caught_by: str, message: str) -> None:
    (check,) = (one for one in session_plugin_checks(policy) if one.name == caught_by)
    with pytest.raises(CheckFailed) as caught:
        check()
    assert message in str(caught.value)
    assert (caught.value.plugin, caught.value.check) == ("mine", caught_by)


class MovesByHand(SessionAction):
    """Sets the node of tasks without telling the session."""

    name = "by-hand"

    def run(self, session: Session) -> None:
        for job in session.jobs.values():
            for task in job.of(TaskStatus.RUNNING).values():
                task.node = session.state.nodes.names[0]


class Overcommits(SessionAction):
    """Gives every task the first node, whether it has room or not."""

    name = "first-node"

    def run(self, session: Session) -> None:
        for job in session.jobs.values():
            for task in list(job.of(TaskStatus.PENDING).values()):
                session.allocate(task, 0)


@pytest.mark.parametrize(
    ("action", "message"), [(MovesByHand, "has the node"), (Overcommits, "more than it has")]
)
def test_a_mistake_of_an_action_is_caught(action: type[SessionAction], message: str) -> None:
    with pytest.raises(CheckFailed, match=message):
        check_session_plugin(action)
