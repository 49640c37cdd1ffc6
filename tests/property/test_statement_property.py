"""Whatever a statement does, rolled back it leaves jobs, nodes and shares as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.batch import Session
from stowplan.batch.session_plugins.drf import DrfPlugin
from stowplan.batch.session_plugins.proportion import ProportionPlugin
from stowplan.batch.state.jobs import TaskInfo
from stowplan.batch.state.session_state import SessionState
from stowplan.batch.statement import Statement
from stowplan.framework.deciders.tasks import TaskStatus
from tests.batch.batch_cluster import BatchCluster
from tests.property.wrong import assert_caught
from tests.soak import examples

Step = tuple[str, int, int]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["allocate", "pipeline", "evict", "mark", "rollback"]),
        st.integers(0, 20),
        st.integers(0, 2),
    ),
    max_size=12,
)
MAKE = Callable[[SessionState], Statement]


def opened() -> Session:
    """Two queues, three nodes, jobs that run and jobs that wait."""
    cluster = BatchCluster("allocate")
    cluster.queue("q2")
    for number in range(3):
        cluster.node(f"n{number}", cpu=4)
        cluster.gang(f"run{number}", 2, queue="q2", node=f"n{number}", least=1)
        cluster.gang(f"wait{number}", 2, "2")
    inventory = cluster.inventory
    return Session(inventory.open(), cluster.options, inventory, "s")


def state(session: Session) -> list[Any]:
    """All that operations change."""
    nodes = session.state.nodes
    drf, proportion = session.plugins[DrfPlugin.name], session.plugins[ProportionPlugin.name]
    assert isinstance(drf, DrfPlugin)
    assert isinstance(proportion, ProportionPlugin)
    return [
        [
            c.amount(row).pairs()
            for c in (nodes.idle, nodes.used, nodes.releasing)
            for row in range(3)
        ],
        [{one.task.key: one.status for one in nodes.tasks_on(row)} for row in range(3)],
        nodes.pod_count.tolist(),
        nodes.has_releases,
        {t.key: (t.status, t.node) for j in session.jobs.values() for t in j.tasks.values()},
        {j.uid: (j.allocated.pairs(), j.wanted.pairs()) for j in session.jobs.values()},
        {uid: (s.share, s.allocated.pairs()) for uid, s in drf.shares.items()},
        {name: (s.share, s.allocated.pairs()) for name, s in proportion.shares.items()},
    ]


def tasks_in(session: Session, status: TaskStatus) -> list[TaskInfo]:
    return [t for j in session.jobs.values() for t in j.of(status).values()]


def check_rollback(steps: list[Step], make: MAKE = Statement) -> None:
    session = opened()
    statement = make(session.state)
    begun = state(session)
    marks = [(0, begun)]
    for verb, choice, row in steps:
        if verb == "mark":
            marks.append((statement.mark(), state(session)))
        elif verb == "rollback" and len(marks) > 1:
            mark, was = marks.pop()
            statement.rollback(mark)
            assert state(session) == was
        elif verb in ("allocate", "pipeline"):
            pending = tasks_in(session, TaskStatus.PENDING)
            if pending:
                getattr(statement, verb)(pending[choice % len(pending)], row)
        elif verb == "evict":
            running = tasks_in(session, TaskStatus.RUNNING)
            if running:
                statement.evict(running[choice % len(running)], "test")
    statement.rollback()
    assert state(session) == begun
    assert not session.state.bound
    assert not session.state.evicted


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_rolled_back_it_never_was(steps: list[Step]) -> None:
    check_rollback(steps)


class _LosesTheNode(Statement):
    """Takes evictions back in the job alone, as the original does."""

    def rollback(self, mark: int = 0) -> None:
        state = self._session_state
        evicted = {o.task.uid: o.task for o in self._ledger[mark:] if hasattr(o, "reason")}
        nodes = state.nodes
        held = {uid: nodes.row(task.node) for uid, task in evicted.items()}
        super().rollback(mark)
        for uid, row in held.items():
            nodes.release(row, evicted[uid])


class _ForgetsTheMark(Statement):
    """Takes everything back, whatever was marked."""

    def rollback(self, mark: int = 0) -> None:
        super().rollback(0)


@pytest.mark.parametrize("wrong", [_LosesTheNode, _ForgetsTheMark])
def test_a_wrong_statement_is_caught(wrong: MAKE) -> None:
    assert_caught(lambda steps: check_rollback(steps, wrong), STEPS)
