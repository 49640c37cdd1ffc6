"""What Volcano's users complain about, over sessions of random clusters (volcano issues 4817, 4679,
5984, 4926, 3869): queues get back what they deserve, guarantees and limits hold, and evictions help
someone and come to an end."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from stowplan.batch.queue_models.volcano.plugins.shares import volcano_capacity
from tests.batch.queue_models.volcano_clusters import SessionCluster, Tree, node, queue, tiers

CONFIG = tiers(
    "priority gang conformance",
    "capacity/ predicates nodeorder",
    actions="enqueue, allocate, reclaim",
)
SHARES = "stowplan.batch.queue_models.volcano.plugins.shares"
LEAVES = ("a1", "a2", "b1", "b2")
N_SEEDS = 12
SESSIONS_MAX = 12


def random_cluster(seed: int) -> SessionCluster:
    """Two nodes of 8 cpu that queues of one branch use up, and jobs of all queues."""
    rng = random.Random(seed)
    deserved = {name: {"cpu": "4"} for name in LEAVES}
    queues = [queue("root"), queue("a", "root", deserved={"cpu": "8"})]
    queues.append(queue("b", "root", deserved={"cpu": "8"}))
    for name in LEAVES:
        guarantee = {"cpu": str(rng.choice([0, 1, 2]))}
        capability = {"cpu": str(rng.choice([8, 12, 16]))}
        amounts = {"deserved": deserved[name], "guarantee": guarantee, "capability": capability}
        queues.append(queue(name, name[0], **amounts))
    cluster = SessionCluster([node("n0"), node("n1")], queues, CONFIG)
    for name in ("n0", "n1"):
        owner = rng.choice(["a1", "a2"])
        cluster.add_job(f"old-{name}", owner, 8, running=name, cpu=1)
    for i, name in enumerate(rng.sample(LEAVES, 4)):
        size, n_pods = rng.choice([1, 2]), rng.randint(2, 6)
        cluster.add_job(f"new{i}", name, n_pods, rng.choice([1, 2]), cpu=size)
    return cluster


def limits_hold(
    cluster: SessionCluster, before: dict[str, int], promised: Collection[str] = ()
) -> list[str]:
    """Queues above their limit, unless they were before, or below their guarantee by eviction.
    promised: pods that have what was evicted for them in their own queue."""
    wrong = []
    for one in cluster.queues:
        name, spec = one["metadata"]["name"], one["spec"]
        used = cluster.used(name)
        limit = int(spec.get("capability", {}).get("cpu", 10**6))
        floor = int(spec.get("guarantee", {}).get("resource", {}).get("cpu", 0))
        if used > max(limit, before[name]):
            wrong.append(f"{name} uses {used}, above its capability {limit}")
        if cluster.used(name, promised) < min(floor, before[name]):
            wrong.append(f"{name} uses {used}, below its guarantee {floor}")
    return wrong


def problems(seed: int) -> list[str]:
    """What went wrong in the sessions of a cluster."""
    cluster, wrong, quiet = random_cluster(seed), list[str](), 0
    for _ in range(SESSIONS_MAX):
        before = {
            one["metadata"]["name"]: cluster.used(one["metadata"]["name"]) for one in cluster.queues
        }
        found = cluster.run()
        if found["evicts"] and not found["pipelined"]:
            wrong.append(f"{len(found['evicts'])} evictions help no pod")
        wrong += limits_hold(cluster, before)
        quiet = quiet + 1 if not found["evicts"] and not found["binds"] else 0
    if not quiet:
        wrong.append("sessions still bind or evict at the end")
    return wrong


@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_limits_and_guarantees_hold_and_evictions_help(seed: int) -> None:
    assert problems(seed) == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1250))
def test_the_same_for_many_clusters(seed: int) -> None:
    assert problems(seed) == []


def test_evictions_below_a_guarantee_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volcano_capacity, "_keeps_guarantee", lambda *_: True)
    monkeypatch.setattr(volcano_capacity, "maximum", lambda left, _: left)
    monkeypatch.setattr(f"{SHARES}.capacity_tree.maximum", lambda left, _: left)
    queues = [
        queue("root"),
        queue("kept", "root", guarantee={"cpu": "4"}, capability={"cpu": "8"}),
        queue("poor", "root", deserved={"cpu": "8"}),
    ]
    cluster = SessionCluster([node("n")], queues, CONFIG)
    cluster.add_job("old", "kept", 8, running="n", cpu=1)
    for i in range(8):
        cluster.add_job(f"new{i}", "poor", 1, cpu=1)
    before = {one["metadata"]["name"]: cluster.used(one["metadata"]["name"]) for one in queues}
    for _ in range(6):
        cluster.run()
    assert limits_hold(cluster, before)


def test_a_nested_queue_gets_back_what_it_deserves_on_a_full_cluster() -> None:
    amounts = {"deserved": {"cpu": "8"}}
    queues = [
        queue("root"),
        queue("a", "root", **amounts),
        queue("b", "root", **amounts),
        queue("a1", "a", deserved={"cpu": "4"}),
        queue("b1", "b", deserved={"cpu": "8"}),
    ]
    cluster = SessionCluster([node("n0"), node("n1")], queues, CONFIG)
    cluster.add_job("old0", "a1", 8, running="n0", cpu=1)
    cluster.add_job("old1", "a1", 8, running="n1", cpu=1)
    for i in range(8):
        cluster.add_job(f"new{i}", "b1", 1, cpu=1)
    for _ in range(4):
        cluster.run()
    assert cluster.used("b1") == 8
    assert cluster.used("a1") == 8


@pytest.mark.parametrize(
    ("queues", "problem"),
    [
        ([queue("root"), queue("a", "none")], "the parent 'none' of queue 'a' does not exist"),
        ([queue("root"), queue("a", "b"), queue("b", "a")], "cycle in the parents of queue 'a'"),
        ([queue("a", "a"), queue("root")], "cycle in the parents of queue 'a'"),
        ([queue("a", "root")], "the parent 'root' of queue 'a' does not exist"),
        (
            [queue("root"), queue("a", "root"), queue("b", "a")],
            "queue 'a' has children and the job ns/job",
        ),
    ],
)
def test_a_tree_that_cannot_be_used(queues: list[Tree], problem: str) -> None:
    cluster = SessionCluster([node("n")], queues, CONFIG)
    cluster.add_job("job", "a", 2, cpu=1)
    found = cluster.run()
    assert found["problems"] == [problem]
    assert not found["binds"]


def test_children_that_guarantee_more_than_there_is() -> None:
    queues = [queue("root", capability={"cpu": "8"})]
    queues += [queue(name, "root", guarantee={"cpu": "6"}) for name in "ab"]
    cluster = SessionCluster([node("n")], queues, CONFIG)
    cluster.add_job("job", "a", 8, cpu=1)
    cluster.add_job("lost", "no-such-queue", 1, cpu=1)
    found = cluster.run()
    assert found["problems"] == []
    assert cluster.used("a") == 6
