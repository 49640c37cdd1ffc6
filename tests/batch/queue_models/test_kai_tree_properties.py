"""What holds whatever KAI's model decides in a tree of queues: departments with teams, limits, jobs
with more pods than they need, jobs that may not be preempted.

Each property has wrong variants of the rule that it is about, which it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from stowplan.batch.queue_models.kai.actions import kai_actions, min_runtime, reclaim_rules
from stowplan.batch.queue_models.kai.fair_share import UNLIMITED
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_queue import KaiQueue, QueueTree
from stowplan.batch.queue_models.kai.state.kai_task import KaiStatus, KaiTask
from stowplan.messages.events import Event
from stowplan.objects.kai.kai_kinds import KaiQueueResource, KaiQueueResources
from tests.batch.queue_models.test_kai_properties import (
    FREE,
    RUNTIME,
    SEEDS,
    Cluster,
    Patch,
    run_all,
    spares_the_young,
    watch,
)
from tests.soak import seeds

QUEUES = {
    # Parent, quota, limit, weight.
    "east": ("", 5, 8, 1),
    "west": ("", 4, -1, 2),
    "red": ("east", 3, 5, 1),
    "blue": ("east", 3, -1, 1),
    "green": ("west", 2, 4, 1),
    "teal": ("west", 3, -1, 3),
}
CARDS = 2
RELEASED = 63
"""A cluster on which a job that is protected loses pods to two actions of one session."""
ACTIONS = ("allocate", "consolidation", "reclaim", "preempt")


class TreeCluster(Cluster):
    """The same nodes under two departments with two teams each. Minimum runtimes are those of the
    departments."""

    def make_queues(self, runtime: str | None) -> Iterator[Event]:
        for name, (parent, quota, limit, weight) in QUEUES.items():
            cards = KaiQueueResources(FREE, FREE, KaiQueueResource(quota, limit, weight))
            own = None if parent else runtime
            times = {"reclaim_min_runtime": own, "preempt_min_runtime": own}
            yield self.queue(name, resources=cards, parent_queue=parent, **times)

    def arrive(self, number: int) -> Iterator[Event]:
        rng = self.random
        size = rng.randint(1, 4)
        asks = ("1", "1Gi", str(rng.choice((1, 1, 1, 2, 3))))
        queue = rng.choice([name for name, (parent, *_) in QUEUES.items() if parent])
        kind = rng.choice(("train", "build-preemptible", "build"))
        needed = rng.randint(1, size)
        yield from self.gang(
            f"g{number}", queue, size, asks, priority_class_name=kind, min_member=needed
        )


def run_trees(seeds_: Iterable[int] = SEEDS, runtime: str | None = None) -> None:
    run_all(seeds_, runtime, TreeCluster)


# No queue of the tree goes above its limit, nor above its quota with jobs that stay.


def keeps_bounds(session: KaiSession) -> Callable[[], None]:
    queues = session.queues.queues
    before = {name: (one.allocated[CARDS], one.fixed[CARDS]) for name, one in queues.items()}

    def after() -> None:
        for name, queue in queues.items():
            used, fixed = before[name]
            if queue.limit[CARDS] != UNLIMITED:
                most = max(used, queue.limit[CARDS])
                assert queue.allocated[CARDS] <= most, f"{name} is above its limit"
            most = max(fixed, queue.quota[CARDS])
            assert queue.fixed[CARDS] <= most, f"{name} is above its quota with jobs that stay"

    return after


def test_no_queue_goes_above_its_limit_or_its_quota(monkeypatch: Patch) -> None:
    for action in ACTIONS:
        watch(monkeypatch, action, keeps_bounds)
    run_trees()


@pytest.mark.parametrize(
    ("bound", "message"), [("limit", "above its limit"), ("quota", "jobs that stay")]
)
def test_bounds_of_departments_that_do_not_count_are_found(
    bound: str, message: str, monkeypatch: Patch
) -> None:
    def up(tree: QueueTree, name: str) -> Iterator[KaiQueue]:
        return iter([tree.queues[name]])

    original = getattr(QueueTree, f"is_over{'' if bound == 'limit' else '_quota'}")

    def of_the_team_alone(tree: QueueTree, *args: Any) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(QueueTree, "up", up)
            return bool(original(tree, *args))

    monkeypatch.setattr(QueueTree, original.__name__, of_the_team_alone)
    for action in ACTIONS:
        watch(monkeypatch, action, keeps_bounds)
    with pytest.raises(AssertionError, match=message):
        run_trees(seeds(100))


# A reclaim takes from what is above its quota where the ways to the two queues part; for one that
# goes above its own quota there, from what is above its fair share too. That holds for the last of
# what is taken as for the first.


def watch_reclaims(patch: Patch) -> list[str]:
    """Check each reclaim; the list gets the queues that lose something."""
    before: dict[str, float] = {}
    waits: set[str] = set()
    lost: list[str] = []
    commit, check = kai_actions.commit, reclaim_rules.ReclaimCheck

    class Noted(check):  # type: ignore[misc,valid-type]
        def __init__(self, session: KaiSession) -> None:
            before.update({n: q.allocated[CARDS] for n, q in session.queues.queues.items()})
            waits.clear()
            waits.update(task.key for job in session.jobs.values() for task in _waiting(job))
            super().__init__(session)

    def watched(session: KaiSession, statement: Any, job: KaiJob, action: str, text: Any) -> None:
        n_before = len(session.evicts)
        commit(session, statement, job, action, text)
        if action != "reclaim":
            return
        asked = sum(one.cards.cards for one in _waiting(job) if one.key not in waits)
        tree = session.queues
        losses = _losses(session, session.evicts[n_before:])
        parting = {name: _where_ways_part(tree, job.queue, name) for name in losses}
        for mine, other in parting.values():
            # Before its last part was taken; no part is larger than the largest one.
            own = [losses[one] for one, (_, theirs) in parting.items() if theirs == other]
            left = before[other] - sum(total for total, _ in own) + max(part for _, part in own)
            assert left > QUEUES[other][1], f"{other} was brought within its quota"
            if before[mine] + asked > QUEUES[mine][1]:
                fair = tree.queues[other].fair[CARDS]
                assert left > fair, f"{other} was brought within its fair share"
            assert before[other] > QUEUES[other][1], f"{other} was within its quota"
            if before[mine] + asked > QUEUES[mine][1]:
                fair = tree.queues[other].fair[CARDS]
                assert before[other] > fair, f"{other} was within its fair share"
            lost.append(other)

    patch.setattr(kai_actions, "commit", watched)
    patch.setattr(kai_actions, "ReclaimCheck", Noted)
    return lost


def _waiting(job: KaiJob) -> list[KaiTask]:
    """Pods that wait for what others leave."""
    return [task for task in job.tasks() if task.status == KaiStatus.PIPELINED]


def _losses(session: KaiSession, evicted: Sequence[str]) -> Mapping[str, tuple[float, float]]:
    """Queue of evicted pods that get no other place -> their cards, and the most that are taken at
    once: what a job needs, or one pod."""
    found: dict[str, tuple[float, float]] = {}
    for job in session.jobs.values():
        gone = [
            task.cards.cards
            for task in job.tasks()
            if task.key in evicted and task.status == KaiStatus.RELEASING
        ]
        if gone:
            total, most = found.get(job.queue, (0.0, 0.0))
            needed = max(sum(pods.minimum for pods in job.sets.values()), 1)
            part = sum(sorted(gone, reverse=True)[:needed])
            found[job.queue] = total + sum(gone), max(most, part)
    return found


def _where_ways_part(tree: QueueTree, mine: str, other: str) -> tuple[str, str]:
    """The highest queues that are above only one of two."""
    ways = [[queue.name for queue in tree.up(name)] for name in (mine, other)]
    left, right = ([name for name in way if not {name} <= {*ways[0]} & {*ways[1]}] for way in ways)
    return left[-1], right[-1]


def test_a_reclaim_takes_from_what_is_above_its_quota(monkeypatch: Patch) -> None:
    lost = watch_reclaims(monkeypatch)
    run_trees()
    assert {*lost} & {"east", "west"}
    assert {*lost} - {"east", "west"}


def test_a_reclaim_for_one_above_its_own_quota_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(KaiQueue, "fits_quota", lambda *_: True)
    watch_reclaims(monkeypatch)
    with pytest.raises(AssertionError, match="within its fair share"):
        run_trees(seeds(200, 144))


def test_a_strategy_by_the_quota_that_forgets_its_own_one_is_found(monkeypatch: Patch) -> None:
    original = reclaim_rules.ReclaimCheck._take

    def forgetful(*args: Any) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KaiQueue, "fits_quota", lambda *_: True)
            return original(*args)

    monkeypatch.setattr(reclaim_rules.ReclaimCheck, "_take", forgetful)
    watch_reclaims(monkeypatch)
    with pytest.raises(AssertionError, match="was brought within its fair share"):
        run_trees(seeds(200, 144))


def test_a_reclaim_from_any_department_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(kai_actions, "may_be_reclaimed", lambda *_: True)
    monkeypatch.setattr(reclaim_rules, "may_reclaim", lambda *_: True)
    monkeypatch.setattr(reclaim_rules.ReclaimCheck, "is_valid", lambda *_: True)
    watch_reclaims(monkeypatch)
    with pytest.raises(AssertionError, match="within its"):
        run_trees(seeds(100))


# Minimum runtimes of departments protect what jobs of their teams need.


def test_minimum_runtimes_of_departments_hold_under_every_action(monkeypatch: Patch) -> None:
    names = ("consolidation", "reclaim", "preempt")
    found = [watch(monkeypatch, name, spares_the_young) for name in names]
    run_trees({*SEEDS, RELEASED}, f"{RUNTIME}s")
    assert all(sum(counts) > 0 for counts in found)


def _only_of_the_team(session: KaiSession, *jobs: KaiJob) -> float:
    terms = session.queues.queues[jobs[-1].queue].terms
    return terms.preempt_min_runtime or terms.reclaim_min_runtime or 0.0


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("_has_enough_active", lambda _: True),
        # As in KAI: what is being released counts as left.
        ("_has_enough_active", min_runtime._has_enough_left),
        ("preempt_runtime", _only_of_the_team),
        ("reclaim_runtime", _only_of_the_team),
    ],
)
def test_runtimes_that_protect_too_little_are_found(
    name: str, wrong: Any, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(min_runtime, name, wrong)
    for action in ("reclaim", "preempt"):
        watch(monkeypatch, action, spares_the_young)
    with pytest.raises(AssertionError, match="has run too short"):
        run_trees(seeds(100, RELEASED), f"{RUNTIME}s")
