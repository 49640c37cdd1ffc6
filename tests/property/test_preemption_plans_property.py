"""Preemptors that are planned together, and nominated pods that are placed together: effects equal
the walk's.

Each wrong variant leaves out one thing that a plan depends on.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from msgspec.structs import replace

from stowplan.assembly import registered
from stowplan.assembly.build import frameworks_for
from stowplan.columns.engine import numpy_kernels, preemption_kernels
from stowplan.columns.engine.preemption_arrays import BLOCK
from stowplan.config import from_tree
from stowplan.cycle import CycleDecider, decider
from stowplan.cycle.preemptor_attempts import ClassSearch
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.pod import DEFAULT_SCHEDULER, Pod
from stowplan.plugins.preemption import kept_candidates
from stowplan.plugins.preemption.kept_candidates import KeptCandidates, PlannedCounts
from stowplan.queue.scheduling_queue import SchedulingQueue
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.scheduler.lanes import kernel_placement
from stowplan.scheduler.lanes.kernel_placement import KernelPlacement
from stowplan.scheduler.tie_breaks import TieBreaks
from stowplan.testing import builders
from stowplan.testing.generators.choices import chance, pick, random_int
from tests.property.engine_kernels import plain_preemption_kernel
from tests.property.engine_random_walk import Pair, scheduler
from tests.property.test_preemptor_search_property import N_STEPS, SEEDS, Preemptors
from tests.property.wrong import assert_caught
from tests.scenarios.label_plugins import PermitByLabel
from tests.soak import examples

KINDS = ((10, "900m"), (10, "2"), (100, "1500m"), (100, "2100m"), (100, "900m"), (100, "100m"))
HOURS = (1, 2, 2, 3)


class Bursts(Preemptors):
    """Preemptors of several templates and few priorities that come together; pods have started at
    different times and request memory; victims leave together."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._kinds = [pick(self.rng, KINDS) for _ in range(random_int(self.rng, 2, 5))]

    def _pod(self, priority: int, cpu: str, on: str = "") -> Event:
        added = super()._pod(priority, cpu, on)
        assert isinstance(added, happened.PodAdded)
        pod = added.pod
        if on and not chance(self.rng, 3):
            hour = pick(self.rng, HOURS)
            started = datetime(2026, 1, 1, hour, tzinfo=UTC)
            pod = replace(pod, status=replace(pod.status, start_time=started))
        self.pods[pod.name] = pod
        return happened.PodAdded(pod)

    def burst(self) -> None:
        """Many preemptors come at once; or all victims leave."""
        events: list[Event] = []
        if self.leaving and not chance(self.rng, 3):
            for eviction in self.leaving:
                events.append(happened.EvictDone(eviction.effect, eviction.uid))
                events.append(happened.PodDeleted(self.pods[eviction.uid]))
            self.leaving.clear()
        else:
            for _ in range(random_int(self.rng, 2, 8)):
                events += [self._pod(*pick(self.rng, self._kinds)) for _ in range(2)]
        self._now += random_int(self.rng, 0, 8) * 10**9
        self._handle(events)


def same_effects(seed: int, n_steps: int = N_STEPS) -> None:
    """Run both, and compare all that they do."""
    found = Bursts(seed)
    for _ in range(n_steps):
        found.burst()
        if chance(found.rng, 3):
            found.step()
    found.pair.compare()


class FailingBursts(Bursts):
    """Some evictions and some bindings are refused."""

    def __init__(self, seed: int) -> None:
        self._binds: list[to_do.Bind] = []
        super().__init__(seed)

    def _handle(self, events: list[Event]) -> None:
        rng = self.rng
        kept = {
            event.uid
            for event in events
            if isinstance(event, happened.EvictDone) and chance(rng, 5)
        }
        outcomes: list[Event] = [
            happened.BindFailed(bind.effect, bind.uid, 500, "slow")
            if chance(rng, 4)
            else happened.BindDone(bind.effect, bind.uid)
            for bind in self._binds
            if not chance(rng, 5)
        ]
        for event in events:
            if isinstance(event, happened.EvictDone) and event.uid in kept:
                outcomes.append(happened.EvictFailed(event.effect, event.uid, 429, "slow"))
            elif not (isinstance(event, happened.PodDeleted) and event.pod.uid in kept):
                outcomes.append(event)
        effects = self.pair.handle(outcomes, self._now)
        self.leaving += [one for one in effects if isinstance(one, to_do.Evict)]
        self._binds = [one for one in effects if isinstance(one, to_do.Bind)]


def same_effects_while_requests_fail(seed: int) -> None:
    """Run both, and compare all that they do."""
    found = FailingBursts(seed)
    for _ in range(2 * N_STEPS):
        found.burst()
        if chance(found.rng, 3):
            found.step()
    found.pair.compare()


def use(monkeypatch: pytest.MonkeyPatch, kernel: Callable[..., int] | None) -> None:
    monkeypatch.setattr(decider, "load_preemption_kernel", lambda: kernel)


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS)
def test_planned_preemptors_decide_as_the_walk(seed: int) -> None:
    same_effects(seed)


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS)
# No node has what a preemptor selects.
@example(2076)
def test_the_same_while_requests_fail(seed: int) -> None:
    same_effects_while_requests_fail(seed)


def test_the_same_by_the_kernel_that_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arrays are checked for their bounds."""
    use(monkeypatch, plain_preemption_kernel().run)
    for seed in range(examples(10)):
        same_effects(seed)


def test_the_same_where_plans_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, None)
    for seed in range(examples(5)):
        same_effects(seed)


def test_preemptors_are_planned_and_nominated_pods_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    right, bound, found = (
        ClassSearch._preempts,
        KernelPlacement._bind_nominated,
        [],
    )

    def preempts(self: ClassSearch, rejections: Any, *given: Any) -> Any:
        found.append("preempts")
        return right(self, rejections, *given)

    def bind(
        self: Any, entries: Any, classes: Any, start: int, rows: list[int], *given: Any
    ) -> None:
        found.extend(["placed"] * len(rows))
        bound(self, entries, classes, start, rows, *given)

    monkeypatch.setattr(ClassSearch, "decide", lambda *given: None)
    monkeypatch.setattr(ClassSearch, "_preempts", preempts)
    monkeypatch.setattr(KernelPlacement, "_bind_nominated", bind)
    for seed in range(8):
        same_effects(seed)
    assert found.count("preempts") > 20
    assert found.count("placed") > 10


WRONG_KERNELS = {
    "nominations are not counted": ("        table[pa.N_SLOTS, row] -= 1\n", "        pass\n"),
    "what a nominated pod requests stays free": (
        "            table[pa.FREE + r, row] -= wanted[one, r]\n",
        "            pass\n",
    ),
    "violations of budgets do not count": (
        "state[one, row, pa.VIOLATIONS] += pods[pa.IS_PROTECTED, pod]",
        "state[one, row, pa.VIOLATIONS] += 0",
    ),
    "the start of victims does not count": (
        "for i in range(pa.AGE + 1):",
        "for i in range(pa.AGE):",
    ),
    "the latest start counts": (
        "max(state[one, row, pa.AGE], age)",
        "min(state[one, row, pa.AGE], age)",
    ),
    "the least important victim counts": (
        "priority > state[one, row, pa.HIGHEST]",
        "priority < state[one, row, pa.HIGHEST]",
    ),
    "equal rows are taken from the last one on": (
        "return table[pa.RANK, row] < table[pa.RANK, other]",
        "return table[pa.RANK, row] > table[pa.RANK, other]",
    ),
    "a row that has changed keeps its place in its block": (
        "        best[one, row // pa.BLOCK] = pa.NOWHERE - 1\n",
        "        if place == changed.shape[0] - 1:\n"
        "            best[one, row // pa.BLOCK] = pa.NOWHERE - 1\n",
    ),
}


SEEDS_OF_WRONG = {
    "violations of budgets do not count": 1,
    "the latest start counts": 4,
    "equal rows are taken from the last one on": 4,
}


@pytest.mark.parametrize("name", WRONG_KERNELS)
def test_control_wrong_kernels_are_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, plain_preemption_kernel(WRONG_KERNELS[name]).run)
    known = (SEEDS_OF_WRONG.get(name, 0),)
    assert_caught(lambda seed: same_effects(seed, 2 * N_STEPS), SEEDS, known=known)


def verdicts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is short on a row before a nomination is short after it."""
    monkeypatch.setattr(PlannedCounts, "change", lambda self, row, number: None)


def no_row_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters of the node do not count."""
    monkeypatch.setattr(KeptCandidates, "closed", None)


def nominated_pods_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A nominated pod fits whether its victims have left or not."""
    monkeypatch.setattr(KeptCandidates, "passes_where_nominated", lambda self, row, pod: True)


def other_nodes_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A nominated pod is placed where it is nominated though others take it."""
    right = ClassSearch.nominated_row

    def row(self: ClassSearch, pod: Pod, snapshot: Any) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KeptCandidates, "n_passing", 0)
            return right(self, pod, snapshot)

    monkeypatch.setattr(ClassSearch, "nominated_row", row)


def budgets_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pod of a plan is protected."""
    right = kept_candidates.plan

    def plan(members: Any, shared: Any, kernel: Callable[..., int]) -> Any:
        def unprotected(of_members: Any, wanted: Any, table: Any, pods: Any, *given: Any) -> int:
            pods[preemption_kernels.pa.IS_PROTECTED] = 0
            return kernel(of_members, wanted, table, pods, *given)

        return right(members, shared, unprotected)

    monkeypatch.setattr(kept_candidates, "plan", plan)


def classes_join_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class whose search is begun for a plan preempts though a node takes its pods."""
    right = ClassSearch.is_refused

    def is_refused(self: ClassSearch, pod: Pod, snapshot: Any) -> bool:
        return right(self, pod, snapshot) or self._follow(pod, snapshot)

    monkeypatch.setattr(ClassSearch, "is_refused", is_refused)


def rows_stay_for_scored_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """A nominated pod that other nodes take does not see the one before it placed."""
    right = ClassSearch.nominated_decision

    def decision(self: ClassSearch, *given: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KeptCandidates, "follow", lambda self, pod, snapshot: True)
            return right(self, *given)

    monkeypatch.setattr(ClassSearch, "nominated_decision", decision)


def ties_go_to_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nominated pods that other nodes take draw no number."""
    monkeypatch.setattr(TieBreaks, "of_entry", lambda self, entry, place: None)


def the_best_row_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A nominated pod that other nodes take goes to its own where it fits there."""
    right = ClassSearch._unwalked

    def unwalked(
        self: ClassSearch, pod: Pod, one: Any, now: Any, passed: Any, own: int, draw: Any
    ) -> Any:
        kept = passed[passed == own] if (passed == own).any() else passed
        return right(self, pod, one, now, kept, own, draw)

    monkeypatch.setattr(ClassSearch, "_unwalked", unwalked)


@pytest.mark.parametrize(
    ("break_it", "seed"),
    [
        (classes_join_that_fit, 0),
        (rows_stay_for_scored_pods, 0),
        (ties_go_to_the_first, 0),
        (the_best_row_is_its_own, 0),
        (verdicts_stay, 0),
        (no_row_is_closed, 0),
        (nominated_pods_fit, 0),
        (other_nodes_do_not_count, 2),
        (budgets_do_not_count, 1),
    ],
)
def test_control_what_is_left_out_is_noticed(
    break_it: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert_caught(lambda seed: same_effects(seed, 2 * N_STEPS), SEEDS, known=(seed,))


def preempt_behind_closed_rows() -> list[str]:
    """Preemptors of two templates come together, one of which may only go to the last nodes, where
    victims are more important: names of the nodes that it gets. Compares the effects with the
    walk's."""
    pair = Pair(numpy_kernels, lambda: scheduler(None, SchedulerOptions()))
    events: list[Event] = []
    for i in range(BLOCK + 4):
        labels = {"disk": "ssd"} if i >= BLOCK else {}
        events.append(happened.NodeAdded(builders.node(f"n{i}", cpu="2", labels=labels)))
        low = builders.pod(f"low{i}", uid=f"low{i}", cpu="2", priority=i, on=f"n{i}")
        events.append(happened.PodAdded(low))
    pair.handle(events, 0)
    selectors: tuple[dict[str, str], ...] = ({}, {"disk": "ssd"})
    vips = [
        builders.pod(
            f"vip{i}", uid=f"vip{i}", cpu="2", priority=900, node_selector=selectors[i % 2]
        )
        for i in range(8)
    ]
    effects = pair.handle(map(happened.PodAdded, vips), 10**9)
    return [
        one.name
        for one in effects
        if isinstance(one, to_do.Evict) and int(one.preemptor.removeprefix("vip")) % 2
    ]


def test_all_rows_of_a_block_may_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    n_planned = counted_plans(monkeypatch)
    assert preempt_behind_closed_rows() == [f"low{BLOCK + i}" for i in range(4)]
    # The first of all is walked.
    assert max(n_planned) == 7


def test_blocks_that_begin_with_a_candidate_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the first row is a candidate of a block of which no row was evaluated."""
    begun = "            best[one, block] = pa.NOWHERE - 1\n"
    use(monkeypatch, plain_preemption_kernel((begun, "            best[one, block] = 0\n")).run)
    with pytest.raises(AssertionError):
        preempt_behind_closed_rows()


def preempt_one_that_waits() -> None:
    """Preemptors come together, and one of their victims waits at Permit: it is rejected at once,
    so that the next preemptor finds room. Compares the effects with the walk's."""
    full, defaults = registered((PermitByLabel,))
    # Pods of a profile that has Permit are walked.
    off = {"plugins": {"multiPoint": {"disabled": [{"name": PermitByLabel.name}]}}}
    profiles = [{"schedulerName": DEFAULT_SCHEDULER, **off}, {"schedulerName": "holds"}]
    configuration = from_tree({"profiles": profiles}, "", full, defaults, body=True)
    pair = Pair(
        numpy_kernels,
        lambda: Scheduler(frameworks_for(configuration, full), CycleDecider(), SchedulerOptions()),
    )
    held = builders.pod("held", uid="held", cpu="2", labels={"permit": "60"})
    held = replace(held, spec=replace(held.spec, scheduler_name="holds"))
    low = builders.pod("low", uid="low", cpu="2", priority=-10, on="n1")
    pair.handle([happened.NodeAdded(builders.node("n1", cpu="2")), happened.PodAdded(low)], 0)
    pair.handle([happened.NodeAdded(builders.node("n2", cpu="2")), happened.PodAdded(held)], 0)
    vips = [builders.pod(f"vip{i}", uid=f"vip{i}", cpu="1", priority=9) for i in range(6)]
    effects = pair.handle(map(happened.PodAdded, vips), 0)
    assert [one.name for one in effects if isinstance(one, to_do.Bind)] == ["vip3", "vip2"]


def counted_plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many preemptors each plan has decided from now on."""
    right, n_planned = KernelPlacement._preempt_in_turn, list[int]()

    def counted(self: KernelPlacement, *given: Any) -> tuple[int, bool]:
        found = right(self, *given)
        n_planned.append(found[0])
        return found

    monkeypatch.setattr(KernelPlacement, "_preempt_in_turn", counted)
    return n_planned


def test_a_plan_ends_where_more_than_a_nomination_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    n_planned = counted_plans(monkeypatch)
    preempt_one_that_waits()
    assert max(n_planned) == 2


def test_plans_that_go_on_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a plan is used to its end, whatever else its decisions change."""
    right, marks = KernelPlacement._preempt_in_turn, kernel_placement._marks

    def go_on(self: KernelPlacement, *given: Any) -> tuple[int, bool]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SchedulingQueue, "revision", (0, 0, 0))
            patch.setattr(kernel_placement, "_marks", lambda now: marks(now)[-1:])
            return right(self, *given)

    monkeypatch.setattr(KernelPlacement, "_preempt_in_turn", go_on)
    with pytest.raises(AssertionError, match="vip3"):
        preempt_one_that_waits()


def test_blocks_of_rows_are_searched_as_a_whole() -> None:
    """Many rows: the kernel chooses them in the order of their costs."""
    rng, n_rows = np.random.default_rng(0), 300
    pa = preemption_kernels.pa
    priorities = rng.integers(0, 50, n_rows)
    table = np.zeros((pa.FREE + 2, n_rows), dtype=np.int64)
    table[pa.RANK], table[pa.FIRST] = rng.permutation(n_rows), np.arange(n_rows)
    table[pa.N_PODS], table[pa.N_SLOTS], table[pa.FREE + 1] = 1, 10, 4
    pods = np.zeros((pa.REQUESTS + 1, n_rows), dtype=np.int64)
    pods[pa.PRIORITY], pods[pa.REQUESTS] = priorities, 4
    n_pods = 250
    rows = np.zeros(n_pods, dtype=np.int64)
    n_planned = preemption_kernels.run(
        np.zeros(n_pods, dtype=np.int64),
        np.full((1, 1), 4, dtype=np.int64),
        table,
        pods,
        np.ones((1, 8), dtype=np.int64),
        np.zeros((1, n_rows, pa.N_STATE), dtype=np.int64),
        np.zeros((1, -(-n_rows // pa.BLOCK)), dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        rows,
        np.zeros((n_pods + 1, 1), dtype=np.int64),
        np.zeros((n_pods + 1, 2), dtype=np.int64),
    )
    assert n_planned == n_pods
    assert rows.tolist() == np.lexsort((table[pa.RANK], priorities))[:n_pods].tolist()
