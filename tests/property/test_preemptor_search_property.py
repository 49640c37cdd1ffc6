"""Preemptors whose verdicts and candidates are kept as rows change: effects equal the walk's.

Each wrong variant leaves out one thing that the kept answers depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.columns.engine import numpy_kernels
from stowplan.cycle import decider
from stowplan.cycle.preemptor_attempts import ClassSearch
from stowplan.framework import Snapshot
from stowplan.framework.deciders.decider import Decision
from stowplan.framework.runtime import touched_rows
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.plugins.preemption import kept_candidates, ordered_candidates, priority_rows
from stowplan.plugins.preemption.kept_candidates import KeptCandidates
from stowplan.plugins.preemption.ordered_candidates import OrderedCandidates
from stowplan.plugins.preemption.priority_rows import PriorityRows
from stowplan.scheduler import SchedulerOptions
from stowplan.testing import builders
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int
from tests.plugins.preemption_walk import made_budget
from tests.property.engine_random_walk import Pair, scheduler
from tests.property.wrong import assert_caught
from tests.soak import examples

SEEDS = st.integers(0, 2**32 - 1)
N_STEPS = 6
KINDS = (
    (10, "900m"),
    (10, "2"),
    (100, "2"),
    (100, "1500m"),
    (100, "100m"),
    (50, "3"),
    (100, "2100m"),
    (100, "2900m"),
    (10, "1"),
)
APPS = ("x", "y", "z")


class Preemptors:
    """Full nodes, disruption budgets, and pods of a few templates that preempt in turn."""

    def __init__(self, seed: int) -> None:
        self.rng: RandomSource = np.random.default_rng(seed)
        seed_of_ties = seed if chance(self.rng, 2) else None
        self.pair = Pair(numpy_kernels, lambda: scheduler(seed_of_ties, SchedulerOptions()))
        self.pods: dict[str, Pod] = {}
        self.leaving: list[to_do.Evict] = []
        self.names = [f"n{i}" for i in range(random_int(self.rng, 2, 14))]
        self._kinds = [pick(self.rng, KINDS) for _ in range(random_int(self.rng, 1, 4))]
        self._now = 0
        added: list[Event] = [happened.NodeAdded(self._node(name)) for name in self.names]
        for name in self.names:
            added += [self._low(name) for _ in range(random_int(self.rng, 2, 5))]
        self._handle(added + self._budgets())

    def _node(self, name: str) -> Any:
        labels = {"disk": pick(self.rng, ("ssd", "ssd", "ssd", "hdd"))}
        taints = pick(self.rng, ((), (), ("a=b:PreferNoSchedule",)))
        cpu, pods = pick(self.rng, ("2", "4", "4")), pick(self.rng, (110, 110, 6, 4))
        return builders.node(name, cpu=cpu, pods=pods, labels=labels, taints=taints)

    def _low(self, on: str) -> Event:
        priority = pick(self.rng, (-10, 0, 0, 5, 20))
        return self._pod(priority, pick(self.rng, ("900m", "900m", "400m", "1")), on)

    def _pod(self, priority: int, cpu: str, on: str = "") -> Event:
        name = f"p{len(self.pods)}"
        labels = {"app": pick(self.rng, APPS)} if on and not chance(self.rng, 3) else {}
        more = {"node_selector": {"disk": "ssd"}} if cpu == "1500m" else {}
        pod = builders.pod(name, uid=name, cpu=cpu, priority=priority, on=on, labels=labels, **more)
        self.pods[name] = pod
        return happened.PodAdded(pod)

    def _budgets(self) -> list[Event]:
        return [
            happened.ObjectAdded(made_budget(f"of-{app}", app, random_int(self.rng, 0, 2), ()))
            for app in APPS
            if not chance(self.rng, 3)
        ]

    def step(self) -> None:
        """Pods come, some victims are gone, a pod ends, a nominated one is deleted, a node or a
        budget changes."""
        rng = self.rng
        events: list[Event] = []
        for _ in range(random_int(rng, 1, 3)):
            kind = pick(rng, self._kinds)
            events += [self._pod(*kind) for _ in range(pick(rng, (1, 3, 6)))]
        n_gone = pick(rng, (0, len(self.leaving) // 2, len(self.leaving)))
        for eviction in self.leaving[:n_gone]:
            events.append(happened.EvictDone(eviction.effect, eviction.uid))
            events.append(happened.PodDeleted(self.pods[eviction.uid]))
        del self.leaving[:n_gone]
        if chance(rng, 3):
            events += [happened.PodDeleted(self.pods[uid]) for uid in self._nominated()[:1]]
        if chance(rng, 3):
            events.append(self._low(pick(rng, self.names)))
        if chance(rng, 5):
            events.append(happened.NodeUpdated(self._node(pick(rng, self.names))))
        if chance(rng, 5):
            events += self._budgets()
        self._now += random_int(rng, 0, 8) * 10**9
        self._handle(events)

    def _nominated(self) -> list[str]:
        nominator = self.pair.walked.queue.nominator
        return [uid for uid in self.pods if nominator.node_of(uid)]

    def _handle(self, events: list[Event]) -> None:
        effects: list[Effect] = self.pair.handle(events, self._now)
        self.leaving += [one for one in effects if isinstance(one, to_do.Evict)]


def same_effects(seed: int, n_steps: int = N_STEPS) -> None:
    """Run both, and compare all that they do."""
    found = Preemptors(seed)
    for _ in range(n_steps):
        found.step()
    found.pair.compare()


@pytest.fixture(autouse=True, scope="module")
def _without_plans() -> Iterator[None]:
    """Each pod is decided by itself; see `test_preemption_plans_property` for others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decider, "load_preemption_kernel", lambda: None)
        yield


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS)
def test_kept_searches_decide_as_the_walk(seed: int) -> None:
    same_effects(seed)


@pytest.mark.parametrize(
    ("module", "limit"),
    [
        (priority_rows, "ROWS_ONE_BY_ONE_MAX"),
        (kept_candidates, "ROWS_ONE_BY_ONE_MAX"),
        (kept_candidates, "ONE_BY_ONE_MAX"),
    ],
)
def test_the_same_where_rows_are_evaluated_together(
    module: Any, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, limit, 0)
    for seed in range(examples(20)):
        same_effects(seed)


def test_searches_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    right, placed, found = ClassSearch.decide, ClassSearch.nominated_decision, []

    def decide(self: ClassSearch, *given: Any) -> Decision | None:
        answer = right(self, *given)
        found.append(answer and ("placed" if answer.node_name else "preempts"))
        return answer

    def nominated(self: ClassSearch, *given: Any) -> Decision | None:
        answer = placed(self, *given)
        found.append(answer and "placed")
        return answer

    monkeypatch.setattr(ClassSearch, "decide", decide)
    monkeypatch.setattr(ClassSearch, "nominated_decision", nominated)
    for seed in range(8):
        same_effects(seed)
    assert found.count("preempts") > 20
    assert found.count("placed") > 5


def nominations_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with other nominated pods count as unchanged."""
    monkeypatch.setattr(touched_rows.Nominations, "generation", 0)


def changed_rows_keep_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates stand where they stood before their rows have changed."""
    right = KeptCandidates._open_changed

    def open_changed(self: KeptCandidates) -> None:
        if self._is_filled:
            self._changed.clear()
        right(self)

    monkeypatch.setattr(KeptCandidates, "_open_changed", open_changed)


def ranks_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equally good nodes are taken by their rows from the last one on."""
    right = OrderedCandidates.put
    monkeypatch.setattr(
        OrderedCandidates,
        "put",
        lambda self, row, costs, rank: right(self, row, costs, 99 - rank),
    )


def rows_cost_more_at_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows seem to need a victim more than they do."""
    right = priority_rows.keys_at_best
    monkeypatch.setattr(
        priority_rows,
        "keys_at_best",
        lambda violations, highest, n_victims, ranks: right(
            violations, highest, n_victims + 1, ranks
        ),
    )


def most_victims_have_the_highest_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of priorities at best is that of as many pods of the highest one."""
    right = ordered_candidates.costs_at_best
    monkeypatch.setattr(
        ordered_candidates,
        "costs_at_best",
        lambda key, lowest: right(key, int(right(key, lowest)[1]) + 1),
    )


def keys_hold_for_lower_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that need many victims for one class do so for another that requests less."""
    right = PriorityRows.join

    def join(self: PriorityRows, one: object, amounts: tuple[int, ...]) -> None:
        least = self._least
        right(self, one, amounts)
        self._least = least or amounts

    monkeypatch.setattr(PriorityRows, "join", join)


def free_amounts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is free on a row is not found again when the row changes."""
    monkeypatch.setattr(PriorityRows, "_read_row", lambda self, row: None)


def other_priorities_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nominated pods of any priority take room."""
    right = PriorityRows.room_without

    def room(self: PriorityRows, row: int, uid: str) -> Any:
        priority, self._priority = self._priority, -100
        try:
            return right(self, row, uid)
        finally:
            self._priority = priority

    monkeypatch.setattr(PriorityRows, "room_without", room)


def a_pod_counts_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the node that it is nominated to a pod needs room twice."""
    monkeypatch.setattr(KeptCandidates, "passes_without", lambda self, row, uid: self.passes(row))
    monkeypatch.setattr(KeptCandidates, "passes_where_nominated", lambda *_: False)


def budgets_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pod is protected in the dry run of one row."""
    monkeypatch.setattr(PriorityRows, "_by_budget", lambda self, evictable: ([], evictable))


def outcomes_hold_for_any_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dry run of one class is that of all of its priority."""
    right = priority_rows.shared_dry_run

    def run(*given: Any) -> Any:
        found = right(*given)
        names = range(len(found.least))
        return found._replace(least=tuple(0 for _ in names), most=tuple(2**62 for _ in names))

    monkeypatch.setattr(priority_rows, "shared_dry_run", run)


def more_may_be_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run holds for those that request more."""
    right = priority_rows.shared_dry_run

    def run(*given: Any) -> Any:
        found = right(*given)
        return found._replace(most=tuple(2**62 for _ in found.most))

    monkeypatch.setattr(priority_rows, "shared_dry_run", run)


def less_may_be_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run holds for those that request less."""
    right = priority_rows.shared_dry_run

    def run(*given: Any) -> Any:
        found = right(*given)
        return found._replace(least=tuple(0 for _ in found.least))

    monkeypatch.setattr(priority_rows, "shared_dry_run", run)


def priorities_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """All preemptors may evict the same pods."""
    right = PriorityRows.evictable

    def evictable(self: PriorityRows, row: int) -> Any:
        priority, self._priority = self._priority, 100
        try:
            return right(self, row)
        finally:
            self._priority = priority

    monkeypatch.setattr(PriorityRows, "evictable", evictable)


def rows_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dry runs of rows stay when these change."""
    right = PriorityRows.follow

    def follow(self: PriorityRows, snapshot: Snapshot) -> None:
        kept = dict(self._evictable)
        right(self, snapshot)
        self._evictable = kept

    monkeypatch.setattr(PriorityRows, "follow", follow)


def slots_do_not_count_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free pod slots are compared when a row changes, and not when all are evaluated."""
    right = KeptCandidates._all_codes
    monkeypatch.setattr(KeptCandidates, "_all_codes", lambda self: right(self) & ~1)


@pytest.mark.parametrize(
    ("break_it", "seed"),
    [
        (nominations_are_not_followed, 0),
        (changed_rows_keep_their_places, 0),
        (ranks_do_not_count, 0),
        (rows_cost_more_at_best, 142600142),
        (most_victims_have_the_highest_priority, 96393955),
        (keys_hold_for_lower_requests, 221188),
        (free_amounts_stay, 0),
        (other_priorities_count, 0),
        (a_pod_counts_itself, 0),
        (budgets_do_not_count, 0),
        (outcomes_hold_for_any_request, 142600142),
        (more_may_be_requested, 262),
        (less_may_be_requested, 142600142),
        (priorities_are_not_compared, 0),
        (rows_are_not_followed, 0),
        (slots_do_not_count_at_first, 0),
    ],
)
def test_control_what_is_left_out_is_noticed(
    break_it: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert_caught(lambda seed: same_effects(seed, 2 * N_STEPS), SEEDS, known=(seed,))
