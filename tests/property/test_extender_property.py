"""The machine with extenders that answer late, wrongly or not at all.

Each property comes with a realistic wrong variant of the machine, which it is shown to catch.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.cycle import Attempt
from stowplan.cycle.extender_consultation import ExtenderConsultation
from stowplan.framework import PostFilterResult, Snapshot, Status
from stowplan.framework.deciders.extender_review import PreemptionCandidate
from stowplan.framework.status import error
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.plugins.preemption.default_preemption import DefaultPreemption
from stowplan.queue.pod_record import PodRecord
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.extenders.extender_attempts import ExtenderAttempts
from stowplan.scheduler.extenders.extender_calls import PendingExtenderCalls
from stowplan.testing import node, pod
from stowplan.testing.generators.choices import pick, random_int
from tests.property.wrong import assert_caught
from tests.scenarios.script import made, rendered
from tests.scheduler import extender_replies
from tests.scheduler.extender_replies import EXTENDERS
from tests.scheduler.fake_cluster import Faults
from tests.scheduler.random_walk import ROUGH, RandomWalk
from tests.soak import examples

SEEDS = st.integers(0, 2**32 - 1)
STEPS = st.integers(1, 80)


LONG = st.integers(40, 120)
ANSWERS = np.random.default_rng(0)
UNCERTAIN = replace(ROUGH, late=0, lost=2)
BINDERS = tuple(one for one in EXTENDERS if ":bind" in one)


def walk_of(
    seed: int, faults: Faults = ROUGH, among: tuple[str, ...] = EXTENDERS, *, strangers: bool = True
) -> RandomWalk:
    rng = np.random.default_rng(seed)
    extenders, waits = pick(rng, among), pick(rng, ("1", "1", "3"))
    return RandomWalk(rng, faults, strangers=strangers, extenders=extenders, waits=waits)


# No pod is lost.


def nothing_is_lost(seed: int, n_steps: int) -> None:
    """At every step each pod is in exactly one place, and every binding that is asked for fits;
    when the faults stop each pod that fits somewhere is bound, and nobody waits."""
    walk = walk_of(seed)
    for _ in range(n_steps):
        walk.step()
    walk.settle()
    walk.check_rest()
    assert not len(walk.scheduler.extender_attempts)
    assert not len(walk.scheduler._extender_calls), "calls are under way that nobody waits for"


@settings(max_examples=examples(30))
@given(SEEDS, STEPS)
def test_no_pod_is_lost_while_extenders_fail(seed: int, n_steps: int) -> None:
    nothing_is_lost(seed, n_steps)


@pytest.mark.parametrize(("seed", "n_steps"), [(2471, 53), (2939, 118)])
def test_walks_that_once_found_something(seed: int, n_steps: int) -> None:
    """A write whose answer was lost has bound the claim elsewhere by the time of the next."""
    nothing_is_lost(seed, n_steps)


def test_walks_do_wait_for_extenders() -> None:
    walks = [walk_of(seed) for seed in range(6)]
    for walk in walks:
        for _ in range(60):
            walk.step()
    assert sum(walk.n_waits for walk in walks) > 50


def test_an_attempt_that_is_dropped_when_its_time_is_over_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: a call that nobody answers is forgotten, and so is who waits for it."""

    def serve_due(self: PendingExtenderCalls) -> None:
        for effect in self._deadlines.due(self._context.now):
            self._pending.pop(effect, None)

    monkeypatch.setattr(PendingExtenderCalls, "serve_due", serve_due)
    assert_caught(nothing_is_lost, SEEDS, STEPS)


def test_an_answer_for_a_pod_that_has_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a pod that goes is not taken from among those that wait."""
    monkeypatch.setattr(ExtenderAttempts, "_stop", lambda self, record: None)
    assert_caught(nothing_is_lost, SEEDS, STEPS)


def test_a_kept_node_that_has_filled_up_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: what an extender has kept is taken without another look at it."""

    def left(self: ExtenderConsultation, attempt: Attempt, first: list[str] | None) -> list[str]:
        nodes = attempt.snapshot.nodes
        if self._names is not None:
            return [name for name in self._names if nodes.row(name) >= 0]
        return right(self, attempt, first)

    right = ExtenderConsultation._remaining_rows
    monkeypatch.setattr(ExtenderConsultation, "_remaining_rows", left)
    assert_caught(nothing_is_lost, SEEDS, STEPS)


# No binding that does not fit.


def no_node_is_crowded(seed: int, n_steps: int) -> None:
    """Without strangers and late bindings no node is over-committed in truth."""
    walk = walk_of(seed, UNCERTAIN, BINDERS, strangers=False)
    for _ in range(n_steps):
        walk.step()
        walk.check_truth()


@settings(max_examples=examples(20))
@given(SEEDS, LONG)
def test_no_node_is_over_committed_by_who_binds(seed: int, n_steps: int) -> None:
    no_node_is_crowded(seed, n_steps)


def test_room_that_is_given_away_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: when an extender fails to bind the pod counts as not bound."""

    def doubt(self: BindingCycles, record: PodRecord, text: str) -> None:
        self._fail(record, error(text))

    monkeypatch.setattr(BindingCycles, "_outcome_unknown", doubt)
    assert_caught(no_node_is_crowded, SEEDS, LONG)


# Extenders that agree change nothing.


def decisions(seed: int, extenders: str) -> list[str]:
    """What becomes of pods of all sorts, each call of extenders being agreed to at once."""
    rng = np.random.default_rng(seed)
    scheduler = made(extenders=extenders)
    for i in range(random_int(rng, 1, 5)):
        size = str(random_int(rng, 1, 6))
        scheduler.handle([happened.NodeAdded(node(f"n{i}", cpu=size, zone=f"z{i % 2}"))], 0)
    lines: list[str] = []
    for i in range(12):
        cpu, rank = str(random_int(rng, 0, 3)), pick(rng, (0, 1, 9))
        events: list[Event] = [happened.PodAdded(pod(f"p{i}", cpu=cpu, priority=rank))]
        while events:
            effects = scheduler.handle(events, 0)
            calls = [one for one in effects if isinstance(one, to_do.CallExtender)]
            events = [extender_replies.reply(ANSWERS, one, calm=True) for one in calls]
            lines += [
                rendered(one)
                for one in effects
                if isinstance(one, to_do.Bind | to_do.Evict | to_do.PatchStatus)
            ]
    return lines


def agreement_changes_nothing(seed: int) -> None:
    """With extenders that keep every node and every candidate, the same becomes of all pods."""
    assert decisions(seed, "fit:filter:preempt:names,more:filter:names") == decisions(seed, "")


@settings(max_examples=examples(30))
@given(SEEDS)
def test_extenders_that_agree_change_nothing(seed: int) -> None:
    agreement_changes_nothing(seed)


def test_scores_that_are_left_out_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: where extenders have been asked the plugins' scores are forgotten."""
    zeros = lambda self, attempt, rows: np.zeros(rows.shape[0], dtype=np.int64)  # noqa: E731
    monkeypatch.setattr(ExtenderConsultation, "totals", zeros)
    assert_caught(agreement_changes_nothing, SEEDS)


def test_candidates_out_of_order_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: of candidates that extenders have left the last is taken."""

    def reviewed(
        self: DefaultPreemption,
        answer: tuple[PreemptionCandidate, ...] | Status,
        snapshot: Snapshot,
    ) -> PostFilterResult:
        if isinstance(answer, Status) or not answer:
            return right(self, answer, snapshot)
        return right(self, answer[-1:], snapshot)

    right = DefaultPreemption._reviewed
    monkeypatch.setattr(DefaultPreemption, "_reviewed", reviewed)
    assert_caught(agreement_changes_nothing, SEEDS)
