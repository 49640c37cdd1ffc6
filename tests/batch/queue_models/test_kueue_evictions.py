"""Preemption of Kueue's queues comes to an end, unless Kueue's own defects are asked for."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tests.conformance
from stowplan.batch.queue_models.kueue.kueue_admission import KueueAdmission, KueueObjects
from stowplan.batch.queue_models.kueue.kueue_objects import seconds
from stowplan.batch.queue_models.kueue.kueue_options import STRATEGIES, KueueOptions
from stowplan.batch.queue_models.kueue.preemption.eviction_memory import EvictionMemory
from stowplan.conformance.queue_models.kueue_cases import KueueCaseCluster
from tests.batch.queue_models.test_kueue_admission import holders, job, random_state
from tests.conformance.compare import recorded

DATA = Path(tests.conformance.__path__[0]) / "data" / "queues"
ENDLESS = {
    "kueue-fairshare": ("made-fairshare-1013", "made-fairshare-193", "made-fairshare-247"),
    "kueue-hierarchy": ("made-hierarchy-1002", "made-hierarchy-198"),
    "kueue-partial": ("made-partial-102",),
}
CYCLES_MAX = 80


def endless_states(is_fixed: bool) -> dict[str, KueueAdmission]:
    """Recorded cases in which Kueue evicts without end."""
    found = {}
    for family, names in ENDLESS.items():
        for line, _ in recorded(DATA / f"{family}.jsonl.gz"):
            if not any(f'"{name}"'.encode() in line for name in names):
                continue
            case = json.loads(line)
            cluster = msgspec.convert(case["cluster"], KueueCaseCluster)
            parts = {name: getattr(cluster, name) for name in cluster.__struct_fields__}
            objects = KueueObjects(**{**parts, "now": seconds(cluster.now)})
            strategies = STRATEGIES if "fairSharing" in case["config"] else ()
            options = KueueOptions(strategies=strategies, is_fixed=is_fixed)
            found[case["id"]] = KueueAdmission(objects, options)
    assert len(found) == sum(map(len, ENDLESS.values()))
    return found


def n_evictions_late(state: KueueAdmission) -> int:
    """Evictions in the second half of the cycles."""
    late = 0
    for n in range(CYCLES_MAX):
        outcome = state.run_cycle()
        if outcome is None:
            break
        late += len(outcome.preempted) if n >= CYCLES_MAX // 2 else 0
        state.between_cycles()
        if n == 0:
            state.activate_all()
    return late


def test_evictions_end_where_those_of_kueue_do_not() -> None:
    assert not [name for name, one in endless_states(True).items() if n_evictions_late(one)]
    assert all(n_evictions_late(one) for one in endless_states(False).values())


@pytest.mark.parametrize("fair", [False, True])
def test_no_pair_is_repeated_while_nothing_else_changes(fair: bool) -> None:
    """1,000 cycles of random arrivals; `useless` pairs are not repeated at all."""
    n_cycles, seed = 0, 0
    while n_cycles < 1_000:
        state, rng = random_state(seed, fair=fair)
        for step in range(8):
            arrive(state, rng, step)
            pairs: list[tuple[str, str]] = []
            for _ in range(30):
                outcome = state.run_cycle()
                if outcome is None:
                    break
                n_cycles += 1
                for victim, (_, preemptor) in outcome.preempted.items():
                    assert (preemptor, victim) not in pairs
                    pairs.append((preemptor, victim))
                state.between_cycles()
            else:
                pytest.fail("evictions do not end")
            held = [f"default/{name}" for name in holders(state)]
            state.finish(rng.sample(held, len(held) // 3))
        seed += 1


def arrive(state: KueueAdmission, rng: random.Random, step: int) -> None:
    jobs: list[Any] = [
        job(f"{step}-{i}", f"q{rng.randrange(4)}", rng.randint(1, 5), rng.choice([0, 0, 5]))
        for i in range(5)
    ]
    state.add(jobs)


def test_what_counts_against_an_eviction() -> None:
    memory = EvictionMemory()
    memory.evicted("a", "b", "tree")
    assert memory.is_barred("a", "b", "tree")
    assert not memory.is_barred("b", "a", "tree")
    # It helped: the preemptor was admitted, and another workload came later.
    memory.admitted("a")
    memory.admitted("b")
    memory.tree_changed("tree")
    assert not memory.is_barred("a", "b", "tree")
    # It did not help: the victim was first.
    memory.evicted("a", "b", "tree")
    memory.admitted("b")
    memory.tree_changed("tree")
    assert memory.is_barred("a", "b", "tree")
    memory.quota_changed(["tree"])
    assert not memory.is_barred("a", "b", "tree")
    memory.evicted("a", "b", "tree")
    memory.admitted("b")
    memory.finished("a")
    assert not memory.useless


class PlainMemory:
    """What `EvictionMemory` means, looked up among all evictions each time."""

    def __init__(self) -> None:
        self.useless: set[tuple[str, str]] = set()
        self.open: set[tuple[str, str]] = set()

    def evicted(self, preemptor: str, victim: str) -> None:
        self.open.add((preemptor, victim))

    def admitted(self, key: str) -> None:
        self.useless |= {pair for pair in self.open if pair[1] == key}
        self.open = {pair for pair in self.open if key not in pair}

    def finished(self, key: str) -> None:
        self.useless = {pair for pair in self.useless if key not in pair}
        self.open = {pair for pair in self.open if key not in pair}


@pytest.mark.parametrize("seed", range(20))
def test_a_workload_finds_the_evictions_that_it_was_part_of(seed: int) -> None:
    rng, memory, plain = random.Random(seed), EvictionMemory(), PlainMemory()
    for _ in range(60):
        first, second = rng.sample("abcdef", 2)
        step = rng.choice(("evicted", "evicted", "admitted", "finished"))
        if step == "evicted":
            memory.evicted(first, second, "tree")
            plain.evicted(first, second)
        else:
            getattr(memory, step)(first)
            getattr(plain, step)(first)
        assert memory.useless == plain.useless
