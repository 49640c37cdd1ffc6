"""Nested queues get back what they deserve on a full cluster (volcano issues 4817, 4679, 3990): on
random trees whose pods one branch has, every queue ends with what it deserves, as far as it asks
for it."""

from __future__ import annotations

import random

import pytest

from stowplan.batch.queue_models.volcano.plugins.shares.volcano_capacity import VolcanoCapacity
from stowplan.config.session_configuration import VOLCANO_1_15
from tests.batch.queue_models.volcano_clusters import SessionCluster, Tree, node, queue, tiers
from tests.soak import examples, seeds

CONFIG = tiers("priority gang conformance", "capacity/ predicates nodeorder")
N_NODES, SIZE = 2, 8
TOTAL = N_NODES * SIZE
SESSIONS = 14


def parts_of(total: int, n_parts: int, rng: random.Random) -> list[int]:
    """Whole numbers above 0 that add up to a total."""
    cuts = sorted(rng.sample(range(1, total), n_parts - 1))
    return [right - left for left, right in zip([0, *cuts], [*cuts, total], strict=True)]


def full_cluster(rng: random.Random) -> tuple[SessionCluster, dict[str, int], dict[str, int]]:
    """The cluster; of each leaf what it deserves, and what it asks for."""
    limit: Tree = {"capability": {"cpu": str(TOTAL)}} if rng.random() < 0.7 else {}
    queues, deserved = [queue("root", **limit)], dict[str, int]()
    for branch, amount in zip("abc", parts_of(TOTAL, 3, rng), strict=True):
        more = {"capability": {"cpu": str(TOTAL)}} if rng.random() < 0.5 else {}
        queues.append(queue(branch, "root", deserved={"cpu": str(amount)}, **more))
        n_leaves = rng.randint(1, min(2, amount))
        for number, part in enumerate(parts_of(amount, n_leaves, rng)):
            deserved[f"{branch}{number}"] = part
            queues.append(queue(f"{branch}{number}", branch, deserved={"cpu": str(part)}))
    cluster = SessionCluster([node(f"n{i}", SIZE) for i in range(N_NODES)], queues, CONFIG)
    owner = rng.choice(sorted(deserved))
    for i in range(N_NODES):
        cluster.add_job(f"old{i}", owner, SIZE, 1, running=f"n{i}", cpu=1)
        cluster.groups[-1]["spec"]["minResources"] = {"cpu": str(SIZE)}
    asked = {owner: TOTAL}
    for name in sorted(deserved.keys() - {owner}):
        asked[name] = rng.randint(0, deserved[name] + 2)
        for i in range(asked[name]):
            cluster.add_job(f"{name}-{i}", name, 1, 1, cpu=1)
            cluster.groups[-1]["spec"]["minResources"] = {"cpu": "1"}
    return cluster, deserved, asked


def unmet(seed: int, compat: str = "") -> list[str]:
    """Queues that end with less than they deserve and ask for, or than they may keep."""
    cluster, deserved, asked = full_cluster(random.Random(seed))
    for _ in range(SESSIONS):
        cluster.run(compat)
    return [
        f"{name} has {cluster.used(name)}, deserves {amount}, asks for {asked[name]}"
        for name, amount in deserved.items()
        if cluster.used(name) < min(amount, asked[name])
    ]


@pytest.mark.parametrize("seed", range(examples(12)))
def test_every_queue_has_what_it_deserves_at_the_end(seed: int) -> None:
    assert unmet(seed) == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_the_same_for_many_trees(seed: int) -> None:
    assert unmet(seed) == []


def test_a_gate_that_a_full_root_closes_is_caught() -> None:
    assert any(unmet(seed, VOLCANO_1_15) for seed in seeds(6, 1))


def test_victims_of_queues_below_what_they_deserve_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(VolcanoCapacity, "_exceeds", lambda *_: True)
    monkeypatch.setattr(VolcanoCapacity, "preemptive", lambda *_: True)
    assert any(unmet(seed) for seed in seeds(6, 2))
