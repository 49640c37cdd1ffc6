"""A pod that gets a place in a session of KAI's model and loses it to another job in the same one:
the other job has it at once, and the next session decides nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stowplan.batch.queue_models.kai.model import kai_model
from stowplan.batch.queue_models.kai.model.kai_memory import LAST_EVICTION
from stowplan.benchmarks.sessions.kai_benchmarks import KaiBenchmark
from stowplan.benchmarks.sessions.session_benchmarks import START
from stowplan.messages import events as happened
from stowplan.messages.effects import AnnotateGroup, Bind, Evict
from stowplan.objects.kai.kai_kinds import KaiQueueResource, KaiQueueResources

FREE = KaiQueueResource(-1.0, -1.0, 1.0)


def quota(cpu: float, cards: float) -> KaiQueueResources:
    return KaiQueueResources(
        KaiQueueResource(cpu, -1.0, 1.0), FREE, KaiQueueResource(cards, -1.0, 2.0)
    )


def taken_by_reclaim() -> KaiBenchmark:
    """A second pod of queue a is taken the place again that it gets before a job of b."""
    cluster = KaiBenchmark(1, 4)
    cluster.show([cluster.queue(name, resources=quota(4000, 1)) for name in "ab"])
    cluster.show(list(cluster.gang("big", "b", 2, ("24", "1Gi", "2"), min_member=1)))
    cluster.show(list(cluster.gang("one", "b", 1, ("12", "1Gi", "2"))))
    cluster.show(list(cluster.gang("two", "a", 2, ("8", "1Gi", "1"), min_member=1)))
    return cluster


def moved_by_consolidation() -> KaiBenchmark:
    """Pods of a gang that get a card on each node are moved together for one that needs two."""
    cluster = KaiBenchmark(2, 3)
    cluster.show([cluster.queue("a", resources=quota(4000, -1))])
    cluster.show([cluster.queue("b", resources=quota(4000, 2))])
    cluster.show(list(cluster.gang("two", "b", 2, ("8", "1Gi", "2"), min_member=1)))
    cluster.show(list(cluster.gang("one", "a", 2, ("1", "1Gi", "1"))))
    return cluster


CASES: dict[Callable[[], KaiBenchmark], set[str]] = {
    taken_by_reclaim: {"one-0", "two-0"},
    moved_by_consolidation: {"one-0", "one-1", "two-0", "two-1"},
}


def sessions(cluster: KaiBenchmark) -> list[set[str]]:
    """Pods that each of some sessions binds."""
    bound = []
    cluster.session(happened.Synced())
    for _ in range(5):
        assert not any(isinstance(one, Evict) for one in cluster.effects)
        notes = [one.annotations for one in cluster.effects if isinstance(one, AnnotateGroup)]
        assert not any(LAST_EVICTION in own for own in notes)
        bound.append({one.name for one in cluster.effects if isinstance(one, Bind)})
        cluster.settle()
        cluster.session()
    return bound


@pytest.mark.parametrize("case", CASES)
def test_the_job_that_takes_the_place_has_it_at_once(case: Callable[[], KaiBenchmark]) -> None:
    first, *others = sessions(case())
    assert first == CASES[case]
    assert others == [set()] * 4


@pytest.mark.parametrize("case", CASES)
def test_to_let_it_wait_is_caught(
    case: Callable[[], KaiBenchmark], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: it waits for pods that were never bound."""
    monkeypatch.setattr(kai_model, "place_instead", lambda *_: None)
    with pytest.raises(AssertionError):
        test_the_job_that_takes_the_place_has_it_at_once(case)


def test_a_job_that_loses_a_running_pod_as_well_was_evicted() -> None:
    """One pod of an elastic job is evicted, and one that it got in this session is not bound."""
    cluster = KaiBenchmark(1, 4)
    cluster.show(
        [cluster.queue(name, resources=quota(4000, n)) for name, n in (("a", 1), ("b", 2))]
    )
    cluster.show(list(cluster.gang("r", "a", 2, ("8", "1Gi", "1"), [0, 0], min_member=1)))
    later = ("r-2", "r-3")
    cluster.show(
        [
            event
            for event in cluster.members("r", 4, ("8", "1Gi", "1"), (), START)
            if isinstance(event, happened.PodAdded) and event.pod.name in later
        ]
    )
    cluster.show(list(cluster.gang("g", "b", 1, ("12", "1Gi", "1"))))
    cluster.session(happened.Synced())
    assert {one.name for one in cluster.effects if isinstance(one, Evict)} == {"r-1"}
    assert not any(isinstance(one, Bind) for one in cluster.effects)
    (notes,) = [one.annotations for one in cluster.effects if isinstance(one, AnnotateGroup)]
    assert LAST_EVICTION in notes
