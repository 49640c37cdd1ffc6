"""Storms: whatever goes wrong, nothing happens that never may, and nobody is forgotten."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.cache import Cache
from stowplan.cycle.extender_consultation import ExtenderConsultation
from stowplan.fault_runs.fault_run import (
    FaultRun,
    FaultRunConfig,
    FaultRunFailure,
    first_failure,
    run_with_faults,
)
from stowplan.fault_runs.fault_schedule import CALLS, ScheduledFault, shrink_schedule
from stowplan.framework.status import error
from stowplan.messages.events import PodRead
from stowplan.objects.pod import Pod
from stowplan.queue.in_flight_pods import InFlightPods
from stowplan.scheduler.binding.binding_cycle import BindingCycle, BindingStage
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.extenders.extender_calls import PendingExtenderCalls
from tests.fault_runs.fault_runs import EXTENDED, KIT, MANNED
from tests.soak import examples

N_PARTS = 20
SEEDS_SOAKED = 1_000_000
"""Where the seeds of a soak begin: away from those of every day."""
FOUND_WITHIN = range(200)


def part(number: int, first: int = 0) -> range:
    size = examples(50)
    return range(first + number * size, first + (number + 1) * size)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(N_PARTS))
def test_a_thousand_storms(number: int) -> None:
    failure = first_failure(part(number), KIT)
    assert failure is None, str(failure)


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (23562, "a preemptor is woken when a victim in doubt held no room"),
        (3575, "no victim is evicted whose own binding has failed"),
        (12625, "nor one that is bound elsewhere meanwhile"),
        (16259, "nor one that is pending again"),
        (2002214, "a nomination that is being cleared is announced anew"),
        (3015598, "a preemptor is woken when its victim has lost its room before it is answered"),
    ],
)
def test_a_storm_that_once_found_something(seed: int, what: str) -> None:
    failure = first_failure(range(seed, seed + 1), KIT)
    assert failure is None, f"{what}: {failure}"


@pytest.mark.parametrize(
    ("seed", "what"),
    [(1503, "no victim is evicted that has ended while extenders were asked")],
)
def test_a_storm_with_extenders_that_once_found_something(seed: int, what: str) -> None:
    failure = first_failure(range(seed, seed + 1), EXTENDED)
    assert failure is None, f"{what}: {failure}"


@pytest.mark.soak
@pytest.mark.parametrize("number", range(100))
def test_a_hundred_thousand_storms(number: int) -> None:
    failure = first_failure(part(number, SEEDS_SOAKED), KIT)
    assert failure is None, str(failure)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_storms_with_a_crew(number: int) -> None:
    failure = first_failure(part(number), MANNED)
    assert failure is None, str(failure)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(10))
def test_ten_thousand_storms_with_a_crew(number: int) -> None:
    failure = first_failure(part(number, SEEDS_SOAKED), MANNED)
    assert failure is None, str(failure)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_storms_with_extenders(number: int) -> None:
    failure = first_failure(part(number), EXTENDED)
    assert failure is None, str(failure)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_twenty_thousand_storms_with_extenders(number: int) -> None:
    failure = first_failure(part(number, SEEDS_SOAKED), EXTENDED)
    assert failure is None, str(failure)


# A fault that finds nothing to strike proves nothing.

FAULTS = {
    "watches": ("watch cut", "watch expired", "watch lags", "watch repeats", "lists anew"),
    "bindings": (
        *(f"bind refused {code}" for code in (409, 404, 429, 500)),
        "bind unanswered",
        "bind reply lost",
        "bind late",
        "read unanswered",
    ),
    "other requests": ("patch refused", "evict refused", "evict reply lost"),
    "nodes": tuple(
        f"node {how} {when}"
        for how in ("vanishes", "flaps", "changes")
        for when in ("under an assumed pod", "while nobody binds to it")
    ),
    "pods": (
        *(f"pod deleted when {state}" for state in ("waiting", "assumed", "bound")),
        *(f"stranger binds when {state}" for state in ("waiting", "assumed")),
    ),
    "schedulers": ("restart", "restart before a request", "requests of the dead"),
    "two of them": ("lead released", "lead lost", "frozen", "lead won"),
}


def missing(wanted: Sequence[str], kit: FaultRunConfig, seeds: range) -> list[str]:
    """Of some kinds of faults those that strike in none of the storms."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        storm = FaultRun(seed, kit)
        storm.run()
        counts += storm.injected_counts
        lists = (feed.stream.n_lists for pair in storm.feeds.values() for feed in pair)
        counts["lists anew"] += sum(n_lists - 1 for n_lists in lists)
        if all(counts[kind] for kind in wanted):
            return []
    return [kind for kind in wanted if not counts[kind]]


@pytest.mark.slow
def test_every_fault_does_strike() -> None:
    wanted = [kind for kinds in FAULTS.values() for kind in kinds]
    assert missing(wanted, KIT, range(400)) == []


@pytest.mark.slow
def test_every_fault_of_plugins_and_extenders_does_strike() -> None:
    assert missing(("prepare refused", "prepare unanswered"), MANNED, range(100)) == []
    assert missing((*CALLS, "pod deleted when awaiting an extender"), EXTENDED, range(200)) == []


def test_a_fault_that_never_strikes_is_noticed() -> None:
    assert missing(("bind refused 418",), KIT, range(3)) == ["bind refused 418"]


# Planted bugs.


def found(kit: FaultRunConfig = KIT) -> FaultRunFailure:
    failure = first_failure(FOUND_WITHIN, kit)
    assert failure is not None, "no storm showed the mistake"
    return failure


@pytest.mark.slow
def test_a_lost_unreserve_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: what failed is forgotten, and plugins are not told."""

    def undo(self: BindingCycles, uid: str, binding_cycle: Any) -> None:
        monkeypatch.setattr(self, "_tell", lambda *told: None)
        right(self, uid, binding_cycle)
        monkeypatch.undo()
        plant()

    def plant() -> None:
        monkeypatch.setattr(BindingCycles, "_undo", undo)

    right = BindingCycles._undo
    plant()
    assert "holds a cabin" in found().what


@pytest.mark.slow
def test_a_bind_reply_that_is_trusted_over_the_watch_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: a reply that says nothing certain counts as a refusal; the watch would know."""
    monkeypatch.setattr(
        "stowplan.scheduler.binding.binding_cycles.is_definite_failure", lambda code: True
    )
    failure = found()
    assert any(fault.kind in ("bind reply lost", "bind late") for fault in failure.plan)


@pytest.mark.slow
def test_an_event_that_is_dropped_between_pop_and_failure_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: what happens while a pod is in flight is not kept for it."""
    monkeypatch.setattr(InFlightPods, "note", lambda self, *happening: None)
    assert "and waits" in found().what


@pytest.mark.slow
def test_room_that_is_given_up_before_the_watch_confirms_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: the API's word ends the assumption, and the watch has not shown the pod yet."""
    monkeypatch.setattr(Cache, "expect", lambda self, uid, now: self.forget(uid))
    assert found() is not None


@pytest.mark.slow
def test_a_pod_that_is_forgotten_after_a_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a read that finds no binding ends the journey; the watch, it is hoped, knows why."""

    def pod_read(self: BindingCycles, event: PodRead) -> None:
        binding_cycle = self._binding_cycles.get(event.uid)
        if binding_cycle is not None and binding_cycle.stage is BindingStage.BIND_UNKNOWN:
            self._undo(event.uid, binding_cycle)

    monkeypatch.setattr(BindingCycles, "pod_read", pod_read)
    assert "is in [], wanted" in found().what or "does not know the pod" in found().what


@pytest.mark.slow
def test_a_decision_on_an_old_snapshot_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: now and then a pod is assumed, and takes no room."""

    def assume(self: Cache, pod: Pod, node_name: str) -> None:
        count[0] += 1
        small = replace(pod.spec, containers=()) if count[0] % 3 == 0 else pod.spec
        right(self, replace(pod, spec=small), node_name)

    count = [0]
    right = Cache.assume
    monkeypatch.setattr(Cache, "assume", assume)
    assert "wanted" in found().what


@pytest.mark.slow
def test_an_extender_that_is_not_minded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: every node that was offered counts as kept."""
    monkeypatch.setattr(
        ExtenderConsultation, "_kept", lambda self, by, said, offered: list(offered)
    )
    assert "where an extender bars it" in found(EXTENDED).what


@pytest.mark.slow
def test_a_call_that_is_forgotten_when_its_time_is_over_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: whoever waits for it waits for ever."""

    def serve_due(self: PendingExtenderCalls) -> None:
        for effect in self._deadlines.due(self._context.now):
            self._extender_calls.pop(effect, None)

    monkeypatch.setattr(PendingExtenderCalls, "serve_due", serve_due)
    assert found(EXTENDED) is not None


@pytest.mark.slow
def test_an_extender_s_failure_that_is_taken_at_its_word_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: who says that it could not bind has not bound."""

    def doubt(self: BindingCycles, uid: str, binding_cycle: BindingCycle, text: str) -> None:
        self._fail(uid, binding_cycle, error(text))

    monkeypatch.setattr(BindingCycles, "_doubt", doubt)
    assert found(EXTENDED) is not None


# Telling.


@pytest.mark.slow
def test_a_failure_tells_seed_faults_and_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "stowplan.scheduler.binding.binding_cycles.is_definite_failure", lambda code: True
    )
    failure = found()
    text = str(failure)
    assert text.startswith(f"seed {failure.seed}: ")
    for place in range(len(failure.plan)):
        spared = failure.plan[:place] + failure.plan[place + 1 :]
        assert run_with_faults(failure.seed, KIT, spared) is None, (
            f"{failure.plan[place]} is not needed"
        )
    assert all(str(fault) in text for fault in failure.plan)
    assert " -> " in text
    assert "Bind effect=" in text
    again = run_with_faults(failure.seed, KIT, failure.plan)
    assert again is not None
    assert str(again) == text


def test_what_a_failure_does_not_need_is_left_out() -> None:
    plan = [ScheduledFault(at, "restart") for at in range(12)]
    needed = {3, 4, 11}

    def fails(tried: list[ScheduledFault]) -> bool:
        return needed <= {fault.at for fault in tried}

    assert {fault.at for fault in shrink_schedule(plan, fails)} == needed


# The same whatever the hash seed.

STORMS = ("1", "2", "3", "4", "5", "6")


@pytest.mark.slow
def test_two_hash_seeds_give_the_same_story() -> None:
    first, second = logged("1", *STORMS), logged("2", *STORMS)
    assert first == second
    assert len(first.splitlines()) > 500


@pytest.mark.slow
def test_effects_in_the_order_of_a_set_are_noticed() -> None:
    """Wrong: parked pods that an event may help are gathered in a set."""
    assert logged("1", *STORMS, "--wrong") != logged("2", *STORMS, "--wrong")


def logged(hash_seed: str, *arguments: str) -> bytes:
    """What happens in storms of a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tests.fault_runs.fault_runs", "--manned", "--story", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    ).stdout
