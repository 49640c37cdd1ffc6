"""What searches for victims of KAI's model leave behind: pods that are evicted twice have places on
several nodes; which pods of a job come next is kept until one of them is tried."""

from __future__ import annotations

import pytest

from stowplan.batch.queue_models.kai.actions.eviction_notes import commit, moved
from stowplan.batch.queue_models.kai.actions.job_placement import JobPlacement
from stowplan.batch.queue_models.kai.actions.kai_actions import ACTIONS
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.kai_statement import KaiStatement
from stowplan.batch.queue_models.kai.state.kai_task import KaiTask
from stowplan.benchmarks.sessions.kai_benchmarks import KaiBenchmark
from stowplan.benchmarks.sessions.session_benchmarks import START
from stowplan.messages import events as happened

CARD = ("1", "1Gi", "1")
A, B, C, D = (f"n{number:05}" for number in range(4))


def tasks_of(session: KaiSession) -> dict[str, KaiTask]:
    jobs = session.jobs.values()
    return {task.key.removeprefix("ns/"): task for job in jobs for task in job.tasks()}


def returned(session: KaiSession) -> dict[str, str]:
    """Where the pods of a job go that were moved, in their order, and are moved again. Only D has a
    card for one of them."""
    tasks = {
        task.key.removeprefix("ns/"): task for j in session.jobs.values() for task in j.tasks()
    }

    def move(pods: dict[str, str], *others: tuple[str, str]) -> None:
        statement = KaiStatement(session)
        for name in pods:
            statement.evict(tasks[name])
        for name, node in (*pods.items(), *others):
            assert statement.pipeline(tasks[name], node, False)
        commit(session, statement, session.jobs["ns/v"], "consolidation", moved)

    move({"v-0": D})
    move({"v-0": C}, ("w0-0", D), ("w1-0", A), ("w2-0", B))
    statement = KaiStatement(session)
    for name in ("v-0", "v-1"):
        statement.evict(tasks[name])
    assert statement.pipeline(tasks["w3-0"], C, False)
    placement = JobPlacement(session, statement, is_simulated=True)
    assert placement.place(session.jobs["ns/v"], [*session.nodes.values()])
    return {name: tasks[name].node for name in ("v-0", "v-1")}


def test_a_pod_that_was_moved_before_returns_whatever_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Where it once was its last eviction is undone, so that the room there stays for the other one.
    found: list[dict[str, str]] = []
    monkeypatch.setitem(ACTIONS, "allocate", lambda session: found.append(returned(session)))
    cluster = KaiBenchmark(4, 2)
    cluster.show([cluster.queue("q")])
    for number, node in enumerate((0, 1, 2)):
        cluster.show([*cluster.gang(f"f{number}", "q", 1, CARD, [node])])
    cluster.show([*cluster.gang("v", "q", 2, CARD, [0, 3])])
    for number in range(4):
        cluster.show([*cluster.gang(f"w{number}", "q", 1, CARD)])
    cluster.session(happened.Synced())
    assert found == [{"v-0": C, "v-1": D}]


def following(session: KaiSession) -> list[str]:
    """Pods of an elastic job that come next once it is a victim, and its pods have been tried."""
    tasks, job = tasks_of(session), session.jobs["ns/v"]
    statement = KaiStatement(session)
    for name in ("v-0", "v-1"):
        statement.evict(tasks[name])
    assert statement.pipeline(tasks["w0-0"], A, False)
    placement = JobPlacement(session, statement, is_simulated=True)
    assert not placement.place(job, [*session.nodes.values()])
    commit(session, statement, session.jobs["ns/w0"], "reclaim", moved)
    return [task.key for task in job.next_tasks(False)]


def test_evicted_pods_of_which_one_had_a_place_do_not_come_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[list[str]] = []
    monkeypatch.setitem(ACTIONS, "allocate", lambda session: found.append(following(session)))
    cluster = KaiBenchmark(2, 1)
    cluster.show([cluster.queue("q")])
    events = [*cluster.gang("v", "q", 3, CARD, min_member=2)]
    for number in range(2):
        pod = cluster._pod(f"v-{number}", "v", CARD, f"n{number:05}", START)
        events[number + 1] = happened.PodAdded(pod)
    cluster.show([*events, *cluster.gang("w0", "q", 1, CARD)])
    cluster.session(happened.Synced())
    assert found == [["ns/v-2"]]
