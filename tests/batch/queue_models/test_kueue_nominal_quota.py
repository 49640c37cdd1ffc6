"""Nominal quota is always got back: a workload that its queue has nominal quota for is admitted,
over 1,000 cycles of random arrivals in nested cohorts, with and without fair sharing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stowplan.batch.queue_models.kueue.kueue_admission import KueueAdmission
from tests.batch.queue_models.test_kueue_admission import (
    CPU,
    admission,
    holders,
    job,
    queue,
    settle,
)

SETTLED = 60
"""Cycles after which a state has come to rest."""
CYCLES = 1_000


def random_queues(seed: int, *, fair: bool, reclaim: str = "Any") -> tuple[KueueAdmission, Any]:
    """Five queues in nested cohorts, that reclaim whatever was lent."""
    rng = random.Random(seed)
    queues = [
        queue(
            f"q{i}",
            rng.randint(1, 8),
            cohortName=rng.choice("abc"),
            queueingStrategy=rng.choice(["BestEffortFIFO", "StrictFIFO"]),
            limits={"lendingLimit": rng.randint(0, 4)} if rng.random() < 0.3 else {},
            preemption={
                "reclaimWithinCohort": reclaim,
                "withinClusterQueue": rng.choice(["Never", "LowerPriority"]),
            },
        )
        for i in range(5)
    ]
    parents = {"a": "root", "b": "root", "c": "a"}
    cohorts = [{"metadata": {"name": n}, "spec": {"parentName": p}} for n, p in parents.items()]
    return admission(queues, [], cohorts, fair=fair), rng


def denied(state: KueueAdmission, rng: Any, step: int) -> list[str]:
    """Queues that do not get their nominal quota. Others have arrived, and borrowed, before."""
    found = []
    sizes = [(rng.randrange(5), rng.randint(1, 6), rng.choice([0, 0, 5])) for _ in range(6)]
    state.add([job(f"{step}-{i}", f"q{q}", n, p) for i, (q, n, p) in enumerate(sizes)])
    settle(state, SETTLED)
    for name, one in state.queues.items():
        free = (one.node.quota(CPU).nominal - one.node.usage.get(CPU, 0)) // 1000
        if free <= 0 or len(state.pending[name]):
            continue
        made = job(f"{step}-{name}", name, rng.randint(1, free))
        state.add([made])
        settle(state, SETTLED)
        if not state.workloads[made.key].holds_quota:
            found.append(name)
    held = [f"default/{name}" for name in holders(state)]
    state.finish(rng.sample(held, len(held) // 3))
    return found


def all_denied(*, fair: bool, reclaim: str = "Any") -> list[str]:
    """The same, over as many cycles as are promised."""
    cycles, seed, found = 0, 0, []
    while cycles < CYCLES:
        state, rng = random_queues(seed, fair=fair, reclaim=reclaim)
        for step in range(6):
            found += [f"seed {seed}, step {step}: {name}" for name in denied(state, rng, step)]
        cycles, seed = cycles + state.cycle, seed + 1
    return found


@pytest.mark.parametrize("fair", [False, True])
def test_nominal_quota_is_always_got_back(fair: bool) -> None:
    assert all_denied(fair=fair) == []


@pytest.mark.parametrize("fair", [False, True])
def test_quota_that_is_not_got_back_is_found(fair: bool) -> None:
    """Reclaiming from lower priority only, as a wrong comparison of priorities would."""
    assert all_denied(fair=fair, reclaim="LowerPriority") != []
