"""What holds whatever KAI's model decides: on random clusters whose owners make evicted pods anew.

Each property has a wrong variant of the rule that it is about, which it finds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

import pytest
from msgspec.structs import replace

from stowplan.batch.queue_models.kai.actions import kai_actions, min_runtime, reclaim_rules
from stowplan.batch.queue_models.kai.actions.kai_actions import ACTIONS
from stowplan.batch.queue_models.kai.actions.reclaim_rules import ReclaimCheck
from stowplan.batch.queue_models.kai.actions.victim_search import KaiVictimSearch
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_amount import CARDS
from stowplan.batch.queue_models.kai.state.kai_task import KaiStatus
from stowplan.benchmarks.sessions.kai_benchmarks import KaiBenchmark
from stowplan.messages import events as happened
from stowplan.messages.effects import Evict
from stowplan.messages.events import Event
from stowplan.objects.kai.kai_kinds import KaiQueueResource, KaiQueueResources
from stowplan.objects.pod import PodStatus
from tests.soak import examples, factor, seeds

FREE = KaiQueueResource(-1, -1, 1)
QUOTAS = {"red": 5, "blue": 4, "green": 3}
N_CARDS, N_CYCLES, RUNTIME = 4, 9, 4
SEEDS = range(examples(40))

Patch = pytest.MonkeyPatch


class Cluster(KaiBenchmark):
    """Three nodes of 4 cards. evictions: how many there were in each cycle."""

    n_nodes = 3

    def __init__(self, seed: int, runtime: str | None = None) -> None:
        super().__init__(self.n_nodes, N_CARDS)
        self.random = random.Random(seed)
        self.evictions: list[int] = []
        self._n_made = 0
        self.show([*self.make_queues(runtime), happened.Synced()])

    def make_queues(self, runtime: str | None) -> Iterator[Event]:
        """The queues. runtime: minimum runtime of their jobs."""
        for name, quota in QUOTAS.items():
            cards = KaiQueueResources(FREE, FREE, KaiQueueResource(quota, -1, 1))
            times = {"reclaim_min_runtime": runtime, "preempt_min_runtime": runtime}
            yield self.queue(name, resources=cards, **times)

    def arrive(self, number: int) -> Iterator[Event]:
        """A gang in one of the queues."""
        rng = self.random
        size = rng.randint(1, 3)
        asks = ("1", "1Gi", str(rng.choice((1, 1, 1, 2, 3, 4))))
        kind = rng.choice(("train", "build-preemptible"))
        name = f"g{number}"
        queue = rng.choice([*QUOTAS])
        yield from self.gang(name, queue, size, asks, priority_class_name=kind)

    def cycle(self, *events: Event) -> None:
        """A session, and what it decided becomes true."""
        self.session(*events)
        evicted = [self.pods[one.name] for one in self.effects if isinstance(one, Evict)]
        self.evictions.append(len(evicted))
        self.settle()
        for pod in evicted:
            self._n_made += 1
            name = f"{pod.name}-{self._n_made}"
            meta = replace(pod.metadata, name=name, uid=name)
            spec, status = replace(pod.spec, node_name=""), PodStatus(phase="Pending")
            self.pods[name] = replace(pod, metadata=meta, spec=spec, status=status)
            self.show([happened.PodAdded(self.pods[name])])

    def leave(self) -> list[Event]:
        """Some pods end."""
        names = [name for name, pod in self.pods.items() if pod.node_name]
        gone = [name for name in names if self.random.random() < 0.1]
        return [happened.PodDeleted(self.pods.pop(name)) for name in gone]


def watch(patch: Patch, name: str, check: Callable[[KaiSession], Callable[[], None]]) -> list[int]:
    """Check an action whenever it runs: before it, and what that returns after it. The list gets
    the number of pods that each run evicted."""
    original, found = ACTIONS[name], []

    def watched(session: KaiSession) -> None:
        n_before, after = len(session.evicts), check(session)
        original(session)
        found.append(len(session.evicts) - n_before)
        after()

    patch.setitem(ACTIONS, name, watched)  # type: ignore[arg-type]
    return found


def run_all(
    seeds_: Iterable[int] = SEEDS,
    runtime: str | None = None,
    kind: type[Cluster] = Cluster,
) -> None:
    """Jobs come and go on several clusters."""
    for seed in seeds_:
        cluster = kind(seed, runtime)
        for number in range(N_CYCLES):
            cluster.cycle(*cluster.leave(), *cluster.arrive(2 * number))
            cluster.cycle(*cluster.leave(), *cluster.arrive(2 * number + 1))


# Within its quota a queue loses nothing to others.


def only_takes_beyond_quotas(session: KaiSession) -> Callable[[], None]:
    before = {name: list(queue.allocated) for name, queue in session.queues.queues.items()}

    def after() -> None:
        for name, queue in session.queues.queues.items():
            if queue.allocated[2] < before[name][2]:
                assert before[name][2] > queue.quota[2], f"{name} was within its quota"

    return after


def test_nothing_is_reclaimed_from_a_queue_within_its_quota(monkeypatch: Patch) -> None:
    found = watch(monkeypatch, "reclaim", only_takes_beyond_quotas)
    run_all()
    assert sum(found) > 0


def test_a_reclaim_that_takes_from_any_queue_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(kai_actions, "may_be_reclaimed", lambda *_: True)
    monkeypatch.setattr(reclaim_rules, "may_reclaim", lambda *_: True)
    monkeypatch.setattr(ReclaimCheck, "is_valid", lambda *_: True)
    watch(monkeypatch, "reclaim", only_takes_beyond_quotas)
    with pytest.raises(AssertionError, match="was within its quota"):
        run_all(seeds(40, 7))


# Consolidation moves pods, and leaves none without a place.


def only_moves(session: KaiSession) -> Callable[[], None]:
    n_before = len(session.evicts)

    def after() -> None:
        moved = {*session.evicts[n_before:]}
        for job in session.jobs.values():
            for task in job.tasks():
                if task.key in moved:
                    assert task.status == KaiStatus.PIPELINED, f"{task.key} has no place"
        for node in session.nodes.values():
            assert node.idle[CARDS] + node.releasing[CARDS] >= 0, f"{node.name} is overfull"

    return after


def test_consolidation_leaves_no_moved_pod_without_a_place(monkeypatch: Patch) -> None:
    found = watch(monkeypatch, "consolidation", only_moves)
    run_all()
    assert sum(found) > 0


def test_a_consolidation_that_only_evicts_is_found(monkeypatch: Patch) -> None:
    search = kai_actions.KaiVictimSearch
    monkeypatch.setattr(
        kai_actions,
        "KaiVictimSearch",
        lambda session, jobs, *_, **__: search(session, jobs, lambda _: True),
    )
    watch(monkeypatch, "consolidation", only_moves)
    with pytest.raises(AssertionError, match="has no place"):
        run_all(seeds(100))


# Jobs that have just started keep the pods that they need.


def spares_the_young(session: KaiSession) -> Callable[[], None]:
    young = {
        uid: job.active
        for uid, job in session.jobs.items()
        if job.last_start is not None and session.now < job.last_start + RUNTIME
    }

    def after() -> None:
        for uid, active in young.items():
            job = session.jobs[uid]
            needed = sum(pods.minimum for pods in job.sets.values())
            assert job.active >= min(active, needed), f"{uid} has run too short"

    return after


def watch_runtimes(patch: Patch) -> list[list[int]]:
    names = ("consolidation", "reclaim", "preempt")
    return [watch(patch, name, spares_the_young) for name in names]


def test_minimum_runtimes_hold_under_every_action(monkeypatch: Patch) -> None:
    found = watch_runtimes(monkeypatch)
    run_all(runtime=f"{RUNTIME}s")
    assert all(sum(counts) > 0 for counts in found)


@pytest.mark.parametrize("action", ["from_reclaim", "from_preemption"])
def test_a_runtime_that_protects_from_one_action_alone_is_found(
    action: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(min_runtime, action, lambda *_: False)
    watch_runtimes(monkeypatch)
    with pytest.raises(AssertionError, match="has run too short"):
        run_all(runtime=f"{RUNTIME}s")


# Jobs that do not end come to rest.


def last_evictions(seed: int, n_cycles: int) -> int:
    """Evictions in the last half of some cycles, in which nothing comes and nothing ends."""
    cluster = Cluster(seed)
    for number in range(8):
        cluster.cycle(*cluster.arrive(number))
    # Each is too large to run beside the other.
    for queue in ("red", "blue"):
        cluster.cycle(*cluster.gang(f"all-{queue}", queue, 3, ("1", "1Gi", "4")))
    first = min(cluster.pods)
    for number in range(n_cycles):
        # So that there is something to decide.
        meta = cluster.pods[first].metadata
        notes = {**meta.annotations, "round": str(number)}
        cluster.cycle(cluster._changed(first, metadata=replace(meta, annotations=notes)))
        if first not in cluster.pods:
            first = min(cluster.pods)
    return sum(cluster.evictions[-n_cycles // 2 :])


def test_evictions_end() -> None:
    n_cycles, few = (1000, SEEDS[:8]) if factor() > 1 else (30, SEEDS)
    assert [last_evictions(seed, n_cycles) for seed in few] == [0] * len(few)


def test_queues_that_take_from_each_other_in_turn_are_found(monkeypatch: Patch) -> None:
    # Whoever takes is placed first, whatever its queue deserves.
    monkeypatch.setattr(KaiVictimSearch, "_order_of", lambda _, jobs: [*jobs.values()])
    monkeypatch.setattr(kai_actions, "may_be_reclaimed", lambda *_: True)
    monkeypatch.setattr(reclaim_rules, "may_reclaim", lambda *_: True)
    monkeypatch.setattr(ReclaimCheck, "is_valid", lambda *_: True)
    assert any(last_evictions(seed, 12) for seed in seeds(10, 9))
