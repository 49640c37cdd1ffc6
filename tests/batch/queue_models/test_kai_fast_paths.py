"""What KAI's sessions keep or leave out to be fast changes nothing that they decide."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.batch.queue_models.kai import job_queue
from stowplan.batch.queue_models.kai.actions import scenario_generators
from stowplan.batch.queue_models.kai.actions.kai_actions import ACTIONS
from stowplan.batch.queue_models.kai.actions.victim_reach import VictimReach
from stowplan.batch.queue_models.kai.actions.victim_scenario import VictimScenario
from stowplan.batch.queue_models.kai.fair_share import UNLIMITED
from stowplan.batch.queue_models.kai.job_queue import JobFilters, JobQueue, SortedJobs
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.kept_scores import NodeScores
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import KaiTask
from stowplan.batch.queue_models.kai.state.node_rows import Column, NodeRows
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.kai.kai_kinds import KaiQueueResource, KaiQueueResources
from stowplan.objects.pod import Affinity, PodAffinity, PodAffinityTerm
from stowplan.objects.selectors import LabelSelector
from tests.batch.queue_models.test_kai_properties import FREE, Patch
from tests.batch.queue_models.test_kai_tree_properties import QUEUES, TreeCluster
from tests.soak import examples, seeds

SEEDS = range(examples(40))
N_JOBS = 40
SPREAD = """
apiVersion: kai.scheduler/v1
kind: SchedulingShard
metadata: {name: default}
spec: {placementStrategy: {gpu: spread, cpu: spread}}
"""

# Scores of nodes that are kept.


class MixedCluster(TreeCluster):
    """The same with jobs that need no card, and nodes that are packed or filled evenly."""

    def __init__(self, seed: int, runtime: str | None = None) -> None:
        if seed % 2:
            self.configuration = SPREAD
        super().__init__(seed, runtime)

    def arrive(self, number: int) -> Iterator[Event]:
        yield from super().arrive(number)
        queue = self.random.choice([name for name, (parent, *_) in QUEUES.items() if parent])
        asks = (self.random.choice(("500m", "1", "2")), "1Gi")
        yield from self.gang(f"c{number}", queue, self.random.randint(1, 6), asks)


def check_scores(patch: Patch) -> list[int]:
    """Compare the nodes of each pod with those that are scored anew; numbers of them."""
    original, found = KaiSession.places, list[int]()

    def names(session: KaiSession, nodes: Sequence[KaiNode], task: KaiTask) -> list[str]:
        return [node.name for node in original(session, nodes, task)]

    def checked(session: KaiSession, nodes: Sequence[KaiNode], task: KaiTask) -> Iterator[KaiNode]:
        kept = names(session, nodes, task)
        with pytest.MonkeyPatch.context() as within:
            within.setattr(KaiSession, "_has_row_scores", lambda *_: False)
            assert kept == names(session, nodes, task), task.key
        found.append(len(kept))
        return original(session, nodes, task)

    patch.setattr(KaiSession, "places", checked)
    return found


def run_mixed(seeds_: Iterable[int]) -> None:
    for seed in seeds_:
        cluster = MixedCluster(seed)
        for number in range(8):
            cluster.cycle(*cluster.leave(), *cluster.arrive(number))


def test_nodes_by_kept_scores_are_those_by_new_ones(monkeypatch: Patch) -> None:
    found = check_scores(monkeypatch)
    run_mixed(SEEDS)
    assert max(found) > 1


def _misses_the_last_change(self: NodeRows, mark: tuple[int, int]) -> list[int] | None:
    return self._read[mark[1] : -1] if mark[0] == self._n_forgotten else None


def _at_first(self: NodeScores, place: int) -> tuple[float, float]:
    return self.__dict__.setdefault("first", {}).setdefault(place, _range(self, place))


_range = NodeScores._free_range


@pytest.mark.parametrize(
    ("where", "name", "wrong"),
    [
        (NodeRows, "changed_since", _misses_the_last_change),
        (NodeScores, "_free_range", _at_first),
        (KaiSession, "_placement_score", lambda *_: 0.0),
    ],
)
def test_kept_scores_that_are_old_are_found(
    where: type, name: str, wrong: Callable[..., Any], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(where, name, wrong)
    check_scores(monkeypatch)
    with pytest.raises(AssertionError):
        run_mixed(seeds(100))


# Jobs that are left out without being taken from the queue.


class CrowdedCluster(TreeCluster):
    """Many jobs of few kinds that wait."""

    def arrive(self, number: int) -> Iterator[Event]:
        rng = self.random
        size, cards = rng.choice((1, 1, 2)), rng.choice(("1", "1", "2"))
        queue = rng.choice([name for name, (parent, *_) in QUEUES.items() if parent])
        yield from self.gang(f"g{number}", queue, size, ("1", "1Gi", cards))


def acted_on(session: KaiSession, seed: int, skips: bool) -> list[str]:
    """Jobs that wait, in the order in which something is done for them. Some get a place at the
    cost of another queue, others none, so that those like them are left out."""
    rng, found, failed = random.Random(seed), list[str](), set[tuple[str, int]]()
    leaves = [name for name, queue in session.queues.queues.items() if not queue.children]
    saved = {name: [*queue.allocated] for name, queue in session.queues.queues.items()}

    def is_left_out(job: KaiJob) -> bool:
        return (job.queue, job.kind) in failed

    queue = JobQueue(session, session.waiting, JobFilters(pending=True))
    while queue:
        job = queue.pop(is_left_out if skips else None)
        if is_left_out(job):
            continue
        found.append(job.uid)
        if rng.random() < 0.5:
            failed.add((job.queue, job.kind))
            continue
        session.queues.allocate(job.queue, session.wanted(job), True)
        session.queues.allocate(rng.choice(leaves), session.wanted(job), True, -1)
    for name, amounts in saved.items():
        session.queues.queues[name].allocated = amounts
    session.queues.version += 1
    return found


def check_skips(seeds_: Iterable[int]) -> int:
    """Compare with all jobs taken out; how many jobs there were."""
    total = 0
    for seed in seeds_:
        cluster = CrowdedCluster(seed)

        def compare(session: KaiSession, seed: int = seed) -> None:
            nonlocal total
            plain = acted_on(session, seed, skips=False)
            total += len(plain)
            assert acted_on(session, seed, skips=True) == plain, seed

        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(ACTIONS, "allocate", compare)  # type: ignore[arg-type]
            cluster.session(*(one for n in range(N_JOBS) for one in cluster.arrive(n)))
    return total


def test_jobs_that_are_skipped_change_no_order() -> None:
    # In 119 another queue below comes first after those above were compared.
    assert check_skips((119, *SEEDS)) > 0


def test_jobs_that_are_skipped_before_queues_are_compared_again_are_found(
    monkeypatch: Patch,
) -> None:
    right = JobQueue.pop

    def careless(self: JobQueue, is_left_out: Callable[[KaiJob], bool] | None = None) -> KaiJob:
        now = self._session.queues.version, self._n_pushed
        branch = self._first(self._roots, now)
        while branch.jobs is None:
            branch = self._first(branch.branches, now)
        if is_left_out is not None and isinstance(branch.jobs, SortedJobs):
            branch.jobs.skip(self._session, is_left_out)
        return right(self)

    monkeypatch.setattr(JobQueue, "pop", careless)
    with pytest.raises(AssertionError):
        check_skips(seeds(200))


def test_jobs_that_are_skipped_whatever_follows_them_are_found(monkeypatch: Patch) -> None:
    def careless(self: SortedJobs, _: KaiSession, is_left_out: Callable[[KaiJob], bool]) -> None:
        while len(self) > 1 and is_left_out(self.first):
            self._at += 1

    monkeypatch.setattr(SortedJobs, "skip", careless)
    with pytest.raises(AssertionError):
        check_skips(seeds(200))


# Searches on one node that are given up.


class NodesCluster(TreeCluster):
    """Jobs of parts of nodes, on some clusters on several each, in a queue without a quota; gangs
    of whole nodes that reclaim them."""

    n_nodes = 6

    def make_queues(self, runtime: str | None) -> Iterator[Event]:
        self.shapes = self.random.choice(
            (((2, 2), (4, 1), (1, 2), (3, 2), (6, 1)), ((1, 1), (1, 2)))
        )
        for name, quota in (("full", 0), ("q", UNLIMITED)):
            cards = KaiQueueResources(FREE, FREE, KaiQueueResource(quota, UNLIMITED, 0))
            yield self.queue(name, resources=cards)

    def arrive(self, number: int) -> Iterator[Event]:
        rng = self.random
        if number % 16 == 15:
            size, cards = rng.choice(((4, 4), (5, 4), (4, 3), (2, 4)))
            yield from self.gang(f"g{number}", "q", size, ("1", "1Gi", str(cards)))
            return
        for name in ("f", "g"):
            size, cards = rng.choice(self.shapes)
            yield from self.gang(f"{name}{number}", "full", size, ("1", "1Gi", str(cards)))


def check_given_up(patch: Patch) -> list[VictimScenario]:
    """Go on where a search is given up: nothing may come. Returns where that was so."""
    given_up: list[VictimScenario] = []
    may_work, by_node = VictimReach.may_work, scenario_generators._by_node

    def notes(self: VictimReach, scenario: VictimScenario) -> bool:
        if not may_work(self, scenario):
            given_up.append(scenario)
        return True

    def checked(base: VictimScenario) -> Iterator[VictimScenario]:
        for fork in by_node(base):
            assert not any(one is base for one in given_up), "a node is of use after all"
            yield fork

    patch.setattr(scenario_generators, "PATIENCE", 1)
    patch.setattr(VictimReach, "may_work", notes)
    patch.setattr(scenario_generators, "_by_node", checked)
    return given_up


def run_nodes(seeds_: Iterable[int]) -> None:
    for seed in seeds_:
        cluster = NodesCluster(seed)
        for number in range(16):
            cluster.cycle(*cluster.arrive(number))


def test_no_node_is_of_use_where_a_search_is_given_up(monkeypatch: Patch) -> None:
    given_up = check_given_up(monkeypatch)
    run_nodes(SEEDS)
    assert given_up


def _of_one_row(self: VictimReach, more: Column) -> float:
    return float(more.max(initial=0.0))


def test_a_reach_without_jobs_on_several_nodes_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(VictimReach, "_most", _of_one_row)
    check_given_up(monkeypatch)
    with pytest.raises(AssertionError, match="of use after all"):
        run_nodes(seeds(200))


# Whole sessions.


def recorded(kind: type[TreeCluster], seeds_: Iterable[int]) -> list[str]:
    """All effects of some clusters, those of a session by what they say: reports about the pods of
    a job come in the order in which these were tried."""
    found: list[str] = []

    class Recorded(kind):  # type: ignore[misc,valid-type]
        def session(self, *events: Event) -> float:
            before = len(self.effects)
            took: float = super().session(*events)
            found.extend(sorted(repr(replace(one, effect=0)) for one in self.effects[before:]))
            return took

    for seed in seeds_:
        cluster = Recorded(seed)
        for number in range(16):
            cluster.cycle(*cluster.leave(), *cluster.arrive(number))
    return found


class AffineCluster(TreeCluster):
    """The first pods of some gangs keep the others of theirs from their nodes."""

    def arrive(self, number: int) -> Iterator[Event]:
        for event in super().arrive(number):
            if not isinstance(event, happened.PodAdded) or not event.pod.name.endswith("-0"):
                yield event
                continue
            pod = event.pod
            others = LabelSelector({"job": pod.labels["job"]})
            term = PodAffinityTerm(others, topology_key="kubernetes.io/hostname")
            apart = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
            self.pods[pod.name] = replace(pod, spec=replace(pod.spec, affinity=apart))
            yield happened.PodAdded(self.pods[pod.name])


def take_the_long_way(patch: Patch) -> None:
    """Sessions without what this module is about."""
    patch.setattr(KaiSession, "_has_row_scores", lambda *_: False)
    patch.setattr(KaiSession, "is_known_by_row", lambda *_: False)
    patch.setattr(SortedJobs, "skip", lambda *_: None)
    patch.setattr(VictimReach, "may_work", lambda *_: True)
    patch.setattr(KaiSession, "may_have_room", lambda *_: True)
    patch.setattr(JobQueue, "_holder", lambda self, _: job_queue.BinaryHeap(self.is_job_before))


def check_the_long_way(kind: type[TreeCluster], seeds_: Iterable[int]) -> None:
    for seed in seeds_:
        fast = recorded(kind, [seed])
        with pytest.MonkeyPatch.context() as patch:
            take_the_long_way(patch)
            assert recorded(kind, [seed]) == fast, seed


@pytest.mark.parametrize("kind", [TreeCluster, MixedCluster, NodesCluster, AffineCluster])
def test_sessions_decide_as_they_do_the_long_way(
    kind: type[TreeCluster], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(scenario_generators, "PATIENCE", 1)
    check_the_long_way(kind, SEEDS)


def test_pods_with_affinity_that_are_read_too_late_are_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(NodeRows, "affine", property(lambda self: self._affine))
    with pytest.raises(AssertionError):
        check_the_long_way(AffineCluster, seeds(100))
