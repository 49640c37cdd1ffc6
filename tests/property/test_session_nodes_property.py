"""The amounts of a session's overlay are those recomputed from its pods, whatever it tries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.batch.session import Session
from stowplan.batch.state.jobs import TaskInfo
from stowplan.batch.state.nodes import SessionNodes
from stowplan.columns import PodInfo
from stowplan.columns.overlay import Overlay, OverlayChange, ReleasingOverlay
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.testing import contents
from tests.batch.batch_cluster import GPU, BatchCluster
from tests.property.wrong import assert_caught
from tests.soak import examples

Step = tuple[str, int, int]
Amounts = dict[str, int]

N_NODES = 4
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["allocate", "pipeline", "evict", "mark", "rollback", "commit", "hold", "end hold"]
        ),
        st.integers(0, 20),
        st.integers(0, N_NODES - 1),
    ),
    max_size=14,
)


class PodsOfNodes:
    """A cluster and its pods: what is on nodes is added up from these alone."""

    def __init__(self) -> None:
        self.cluster = cluster = BatchCluster("allocate")
        for number in range(N_NODES):
            ready = "False" if number == 3 else "True"
            cluster.node(f"n{number}", cpu=4, gpus=2 * (number % 2), ready=ready)
            cluster.gang(f"run{number}", 2, "750m", node=f"n{number}", least=1, gpus=number % 2)
            cluster.gang(f"wait{number}", 2, f"{500 * number}m", least=1, gpus=number // 2)
        self.others = [self._other("stays", "n0"), self._other("leaves", "n1", leaving=True)]
        self.nominated = self._other("nominated", "")
        self.holds: list[tuple[int, TaskInfo]] = []

    def _other(self, name: str, node: str, *, leaving: bool = False) -> Pod:
        """A pod of another scheduler."""
        pod = self.cluster.pod(name, cpu="300m", memory="1Gi", node=node, leaving=leaving)
        self.cluster.gone(name)
        pod = replace(pod, spec=replace(pod.spec, scheduler_name="another"))
        if node:
            self.cluster.inventory.pod_updated(pod)
        return pod

    def session(self) -> Session:
        inventory = self.cluster.inventory
        opened = inventory.open([(self.nominated, "n2")])
        return Session(opened, self.cluster.options, inventory, "s")

    def on(self, session: Session, name: str) -> Iterator[tuple[Pod, TaskStatus | None]]:
        """Pods on a node with their statuses, and those for which it is held, without one."""
        for job in session.jobs.values():
            yield from ((t.pod, t.status) for t in job.tasks.values() if t.node == name)
        for pod in self.others:
            if pod.node_name == name:
                is_leaving = pod.metadata.deletion_timestamp is not None
                yield pod, TaskStatus.RELEASING if is_leaving else TaskStatus.RUNNING
        if name == "n2":
            yield self.nominated, None
        for row, task in self.holds:
            if session.state.nodes.names[row] == name:
                yield task.pod, None


def added_up(node: Node, pods: list[tuple[Pod, TaskStatus | None]]) -> dict[str, Amounts]:
    """idle, used, releasing and pods of a node."""
    offered = node.status.allocatable
    found: dict[str, Amounts] = {
        "idle": {"cpu": 4000, "memory": 64 << 30, GPU: 1000 * int(offered.get(GPU, 0))},
        "used": {"cpu": 0, "memory": 0, GPU: 0},
        "releasing": {"cpu": 0, "memory": 0, GPU: 0},
        "pods": {"count": len(pods)},
    }
    for pod, status in pods:
        amounts = requested(pod)
        for name in found["idle"]:
            amount = amounts.get(name, 0) * (1000 if name == GPU else 1)
            if status is not None:
                found["used"][name] += amount
            if status not in (None, TaskStatus.PIPELINED):
                found["idle"][name] -= amount
            if status in (None, TaskStatus.PIPELINED):
                found["releasing"][name] -= amount
            if status is TaskStatus.RELEASING:
                found["releasing"][name] += amount
    return found


def compare(pods: PodsOfNodes, session: Session) -> None:
    """Amounts, counts and fits of every node against its pods."""
    nodes = session.state.nodes
    waiting = [t for j in session.jobs.values() for t in j.of(TaskStatus.PENDING).values()]
    fits = {t.uid: (nodes.fits_idle(t), nodes.fits_future(t)) for t in waiting}
    for row, name in enumerate(nodes.names):
        here = list(pods.on(session, name))
        expected = added_up(nodes.nodes[row], here)
        for kind, column in (
            ("idle", nodes.idle),
            ("used", nodes.used),
            ("releasing", nodes.releasing),
        ):
            got = {r: column.get(r, nodes.n_nodes)[row] for r in expected[kind]}
            assert got == expected[kind], (name, kind)
        assert nodes.pod_count[row] == expected["pods"]["count"], name
        placed = sorted(p.uid for p, status in here if status is not None)
        assert sorted(one.task.uid for one in nodes.tasks_on(row)) == placed, name
        for task in waiting:
            assert (fits[task.uid][0][row], fits[task.uid][1][row]) == would_fit(
                task, expected, name
            ), (task, name)
            one = np.array([row])
            assert nodes.fits_idle(task, one)[0] == fits[task.uid][0][row]


def would_fit(task: TaskInfo, amounts: dict[str, Amounts], name: str) -> tuple[bool, bool]:
    """Whether a task fits now and later by these amounts; node n3 is not ready."""
    idle, releasing = amounts["idle"], amounts["releasing"]
    asked = [(r, n * (1000 if r == GPU else 1)) for r, n in requested(task.pod).items() if n]
    future = all(idle[r] + releasing[r] >= n for r, n in asked) and name != "n3"
    return future and all(idle[r] >= n for r, n in asked), future


def tried(steps: list[Step]) -> None:
    """Take the steps in a session, compare after each; nothing undecided remains."""
    pods = PodsOfNodes()
    inventory = pods.cluster.inventory
    untouched = contents(inventory.nodes)
    session = pods.session()
    nodes, statement, marks = session.state.nodes, session.statement(), [0]
    compare(pods, session)
    for verb, choice, row in steps:
        waiting = tasks_in(session, TaskStatus.PENDING)
        held = {task.uid for _, task in pods.holds}
        free = [task for task in waiting if task.uid not in held]
        match verb:
            case "allocate" if free:
                assert not statement.allocate(free[choice % len(free)], row)
            case "pipeline" if free:
                assert not statement.pipeline(free[choice % len(free)], row)
            case "evict" if running := tasks_in(session, TaskStatus.RUNNING):
                statement.evict(running[choice % len(running)], "test")
            case "mark":
                marks.append(statement.mark())
            case "rollback":
                statement.rollback(marks.pop() if len(marks) > 1 else 0)
            case "commit":
                statement.commit()
                statement, marks = session.statement(), [0]
            case "hold" if free:
                assert nodes.hold(row, free[choice % len(free)])
                pods.holds.append((row, free[choice % len(free)]))
            case "end hold" if pods.holds:
                nodes.end_hold(*pods.holds.pop(choice % len(pods.holds)))
        compare(pods, session)
    statement.rollback()
    compare(pods, session)
    session.close()
    inventory.settle()
    if not inventory.bound:
        assert contents(inventory.nodes) == untouched
    pods.holds.clear()
    compare(pods, pods.session())


def tasks_in(session: Session, status: TaskStatus) -> list[TaskInfo]:
    return [t for j in session.jobs.values() for t in j.of(status).values()]


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_amounts_are_those_of_the_pods(steps: list[Step]) -> None:
    tried(steps)


class _TakesIdle(ReleasingOverlay):
    """Counts a pipelined pod as one that takes idle resources."""

    def pipeline(self, info: PodInfo, row: int) -> None:
        self.place(info, row)


class _KeepsPromises(ReleasingOverlay):
    """Forgets to give releasing resources back when a pipelined pod is undone."""

    def _undo(self, change: OverlayChange) -> None:
        Overlay._undo(self, change)


class _RemovesReleased(ReleasingOverlay):
    """Counts an evicted pod's resources as idle at once."""

    def _count_released(self, row: int, requested: Mapping[str, int], sign: int) -> None:
        self.n_released += sign
        self._add(self._pipelined, row, requested, sign)


@pytest.mark.parametrize("wrong", [_TakesIdle, _KeepsPromises, _RemovesReleased])
def test_a_wrong_overlay_is_caught(
    wrong: type[ReleasingOverlay], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stowplan.batch.state.nodes.ReleasingOverlay", wrong)
    assert_caught(tried, STEPS)


def test_a_session_that_is_not_closed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: what a session has placed stays in the node table."""
    monkeypatch.setattr(SessionNodes, "close", lambda self: None)
    assert_caught(tried, STEPS)
