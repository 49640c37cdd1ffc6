"""Preemption and reclaim come to an end: sessions of random arrivals and completions, with pauses
in which nothing may be evicted any more. `make soak` runs a thousand sessions each."""

from __future__ import annotations

import random

import pytest

from stowplan.batch.queue_models.volcano.plugins.shares.volcano_capacity import VolcanoCapacity
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.config.session_configuration import VOLCANO_1_15
from stowplan.framework.deciders.tasks import TaskStatus
from tests.batch.queue_models.test_volcano_queues import LEAVES, limits_hold
from tests.batch.queue_models.volcano_clusters import SessionCluster, node, queue, tiers
from tests.soak import seeds

CONFIG = tiers(
    "priority gang conformance",
    "overcommit drf capacity/ predicates nodeorder",
    actions="enqueue, allocate, preempt, reclaim",
)
BUSY, PAUSE = 6, 10
"""Sessions with arrivals, and sessions without; at the end of those nothing may happen."""
SAMPLE, FULL = 32, 1008
"""Sessions of a seed: of the tests, and of `make soak`."""


def random_cluster(rng: random.Random) -> SessionCluster:
    """Three nodes, and a tree of queues that deserve all of them."""
    queues = [queue("root")]
    queues += [queue(name, "root", deserved={"cpu": "12"}) for name in "ab"]
    for name in LEAVES:
        amounts = {
            "deserved": {"cpu": "6"},
            "guarantee": {"cpu": str(rng.choice([0, 2, 4]))},
            "capability": {"cpu": str(rng.choice([12, 18, 24]))},
        }
        queues.append(queue(name, name[0], rng.choice([0, 0, 1]), **amounts))
    cluster = SessionCluster([node(f"n{i}") for i in range(3)], queues, CONFIG)
    cluster.priority_classes = [
        {"metadata": {"name": f"p{value}"}, "value": value} for value in (0, 10, 20)
    ]
    return cluster


def arrive(cluster: SessionCluster, rng: random.Random, number: int) -> None:
    """A few jobs come, a few end."""
    for place in range(rng.choice([0, 1, 2])):
        size, n_pods = rng.choice([1, 1, 2, 3]), rng.randint(1, 6)
        least = rng.randint(1, n_pods)
        cluster.add_job(f"j{number}-{place}", rng.choice(LEAVES), n_pods, least, cpu=size)
        spec = cluster.groups[-1]["spec"]
        spec["priorityClassName"] = f"p{rng.choice([0, 10, 20])}"
        if rng.random() < 0.7:
            spec["minResources"] = {"cpu": str(least * size)}
    names = [group["metadata"]["name"] for group in cluster.groups]
    for name in names:
        # A crowded cluster loses more.
        if rng.random() < (0.4 if len(names) > 12 else 0.1):
            cluster.remove_job(name)


def loops(seed: int, n_sessions: int, compat: str = "") -> list[str]:
    """What goes on in pauses, and limits that were broken."""
    rng = random.Random(seed)
    cluster, wrong = random_cluster(rng), list[str]()
    for number in range(n_sessions):
        position = number % (BUSY + PAUSE)
        if position < BUSY:
            arrive(cluster, rng, number)
        before = {
            one["metadata"]["name"]: cluster.used(one["metadata"]["name"]) for one in cluster.queues
        }
        found = cluster.run(compat)
        if found["evicts"] and not found["pipelined"]:
            wrong.append(f"session {number}: {len(found['evicts'])} evictions help no pod")
        broken = limits_hold(cluster, before, found["pipelined"])
        wrong += (f"session {number}: {text}" for text in broken)
        if position == BUSY + PAUSE - 1 and (found["evicts"] or found["binds"]):
            wrong.append(f"session {number}: still evicts {sorted(found['evicts'])}")
    return wrong


@pytest.mark.parametrize("seed", range(3))
def test_evictions_end_when_nothing_arrives(seed: int) -> None:
    assert loops(seed, SAMPLE) == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 110))
def test_evictions_end_over_a_thousand_sessions(seed: int) -> None:
    assert loops(seed, FULL) == []


def test_room_that_others_take_is_caught() -> None:
    # What Volcano does, see TAKEN_ROOM.
    assert any(loops(seed, SAMPLE, VOLCANO_1_15) for seed in seeds(6, 1))


def test_jobs_that_evict_for_pods_beyond_their_minimum_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def has_pending(session: VolcanoSession, job: VolcanoSessionJob) -> bool:
        return bool(job.of(TaskStatus.PENDING))

    # What Volcano did until issue 3869.
    monkeypatch.setattr(VolcanoSession, "is_starving", has_pending)
    monkeypatch.setattr(VolcanoCapacity, "_exceeds", lambda *_: True)
    monkeypatch.setattr(VolcanoCapacity, "preemptive", lambda *_: True)
    assert any(loops(seed, SAMPLE) for seed in seeds(6))
