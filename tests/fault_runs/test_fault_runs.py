"""Fault runs: safety and liveness under random faults, and planted bugs that they find."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from msgspec.structs import replace

from stowplan.cache import Cache
from stowplan.cycle.extender_consultation import ExtenderConsultation
from stowplan.framework.status import error
from stowplan.messages.events import BindFailed, PodRead
from stowplan.objects.pod import Pod
from stowplan.queue.in_flight_pods import InFlightPods
from stowplan.queue.pod_record import PodRecord
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.extenders.extender_calls import PendingExtenderCalls
from tests.fault_runs.configs import BASE_CONFIG, EXTENDERS_CONFIG, TEST_PLUGINS_CONFIG
from tests.fault_runs.fault_run import (
    FaultRun,
    FaultRunConfig,
    FaultRunFailure,
    first_failure,
    run_with_faults,
)
from tests.fault_runs.fault_schedule import CALLS, ScheduledFault, shrink_schedule
from tests.soak import examples, seeds

N_PARTS = 8
SEEDS_SOAKED = 1_000_000
"""First seed of soak tests, apart from the seeds of the daily tests."""
FOUND_WITHIN = 200


def part(number: int, first: int = 0) -> range:
    size = examples(50)
    return range(first + number * size, first + (number + 1) * size)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(N_PARTS))
def test_base_runs(number: int) -> None:
    failure = first_failure(part(number), BASE_CONFIG)
    assert failure is None, str(failure)


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (23562, "a preemptor is woken when a victim with an unknown bind held nothing"),
        (3575, "no victim is evicted whose own binding has failed"),
        (12625, "no victim is evicted that is meanwhile bound elsewhere"),
        (16259, "no victim is evicted that is pending again"),
        (2002214, "a nomination that is being cleared is announced again"),
        (3015598, "a preemptor is woken when its victim is gone before the eviction is answered"),
    ],
)
def test_seeds_that_found_bugs(seed: int, what: str) -> None:
    failure = first_failure(range(seed, seed + 1), BASE_CONFIG)
    assert failure is None, f"{what}: {failure}"


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (1503, "no victim is evicted that has ended during the extender calls"),
        (771586, "no pod is bound whose extender failed after it had bound it, as the watch shows"),
        (613047, "a node that begins to fit during the extender calls wakes the pod"),
        (773087, "a pod is woken when one that was nominated to its node is bound elsewhere"),
    ],
)
def test_extender_seeds_that_found_bugs(seed: int, what: str) -> None:
    failure = first_failure(range(seed, seed + 1), EXTENDERS_CONFIG)
    assert failure is None, f"{what}: {failure}"


@pytest.mark.soak
@pytest.mark.parametrize("number", range(100))
def test_a_hundred_thousand_runs(number: int) -> None:
    failure = first_failure(part(number, SEEDS_SOAKED), BASE_CONFIG)
    assert failure is None, str(failure)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_runs_with_test_plugins(number: int) -> None:
    failure = first_failure(part(number), TEST_PLUGINS_CONFIG)
    assert failure is None, str(failure)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(10))
def test_ten_thousand_runs_with_test_plugins(number: int) -> None:
    failure = first_failure(part(number, SEEDS_SOAKED), TEST_PLUGINS_CONFIG)
    assert failure is None, str(failure)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_runs_with_extenders(number: int) -> None:
    failure = first_failure(part(number), EXTENDERS_CONFIG)
    assert failure is None, str(failure)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_twenty_thousand_runs_with_extenders(number: int) -> None:
    failure = first_failure(part(number, SEEDS_SOAKED), EXTENDERS_CONFIG)
    assert failure is None, str(failure)


# Every kind of fault must hit something: a fault without a target tests nothing.

FAULTS = {
    "watches": ("watch cut", "watch expired", "watch lags", "watch repeats", "relists"),
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
        for when in ("under an assumed pod", "without an assumed pod")
    ),
    "pods": (
        *(f"pod deleted when {state}" for state in ("waiting", "assumed", "bound")),
        *(f"stranger binds when {state}" for state in ("waiting", "assumed")),
    ),
    "schedulers": ("restart", "restart before a request", "requests of the dead"),
    "two schedulers": ("lead released", "lead lost", "frozen", "lead won"),
}


def missing(wanted: Sequence[str], config: FaultRunConfig, tried: Iterable[int]) -> list[str]:
    """The kinds of faults, of those wanted, that hit nothing in any of the runs."""
    counts: Counter[str] = Counter()
    for seed in tried:
        fault_run = FaultRun(seed, config)
        fault_run.run()
        counts += fault_run.injected_counts
        lists = (watch.stream.n_lists for pair in fault_run.watches.values() for watch in pair)
        counts["relists"] += sum(n_lists - 1 for n_lists in lists)
        if all(counts[kind] for kind in wanted):
            return []
    return [kind for kind in wanted if not counts[kind]]


@pytest.mark.slow
def test_every_fault_is_injected() -> None:
    wanted = [kind for kinds in FAULTS.values() for kind in kinds]
    assert missing(wanted, BASE_CONFIG, seeds(400, 286, 117, 90, 22, 13)) == []


@pytest.mark.slow
def test_every_fault_of_plugins_and_extenders_is_injected() -> None:
    assert missing(("prepare refused", "prepare unanswered"), TEST_PLUGINS_CONFIG, range(100)) == []
    assert (
        missing((*CALLS, "pod deleted when awaiting an extender"), EXTENDERS_CONFIG, range(200))
        == []
    )


def test_a_fault_that_is_never_injected_is_reported() -> None:
    assert missing(("bind refused 418",), BASE_CONFIG, range(3)) == ["bind refused 418"]


# Planted bugs: each must make a run fail.


def found(
    *known: int, config: FaultRunConfig = BASE_CONFIG, shrinks: bool = False
) -> FaultRunFailure:
    """The first failure; seeds that are known to fail are tried first."""
    failure = first_failure(seeds(FOUND_WITHIN, *known), config, shrinks=shrinks)
    assert failure is not None, "no run failed"
    return failure


@pytest.mark.slow
def test_a_lost_unreserve_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: Unreserve is not called after a failure."""

    def undo(self: BindingCycles, record: PodRecord) -> None:
        monkeypatch.setattr(self, "_run_notification", lambda *ignored: None)
        right(self, record)
        monkeypatch.undo()
        plant()

    def plant() -> None:
        monkeypatch.setattr(BindingCycles, "_undo", undo)

    right = BindingCycles._undo
    plant()
    assert "holds a reservation" in found().error


@pytest.mark.slow
def test_a_bind_reply_that_is_trusted_over_the_watch_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: an ambiguous reply to Bind counts as a failure."""
    monkeypatch.setattr(BindFailed, "is_definite", True)
    failure = found(shrinks=True)
    assert any(fault.kind in ("bind reply lost", "bind late") for fault in failure.schedule)


@pytest.mark.slow
def test_an_event_that_is_dropped_between_pop_and_failure_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: events are not recorded for pods in flight."""
    monkeypatch.setattr(InFlightPods, "note", lambda self, *event: None)
    assert "and waits" in found().error


@pytest.mark.slow
def test_an_assumption_that_ends_before_the_watch_confirms_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: the reply to Bind ends the assumption before the watch delivers the bound pod."""
    monkeypatch.setattr(Cache, "expect", lambda self, uid, now: self.forget(uid))
    assert found() is not None


@pytest.mark.slow
def test_a_pod_that_is_forgotten_after_a_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a read that finds no binding ends the binding cycle without a retry."""

    def settle(self: BindingCycles, record: PodRecord, event: PodRead) -> None:
        self._undo(record)

    monkeypatch.setattr(BindingCycles, "settle", settle)
    assert "no node is chosen" in found().error or "does not know the pod" in found().error


@pytest.mark.slow
def test_a_decision_on_an_old_snapshot_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: every third assumed pod requests nothing."""

    def assume(self: Cache, pod: Pod, node_name: str) -> None:
        count[0] += 1
        small = replace(pod.spec, containers=()) if count[0] % 3 == 0 else pod.spec
        right(self, replace(pod, spec=small), node_name)

    count = [0]
    right = Cache.assume
    monkeypatch.setattr(Cache, "assume", assume)
    assert "wanted" in found().error


@pytest.mark.slow
def test_an_ignored_extender_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: every node that was sent to the extender counts as passed."""
    monkeypatch.setattr(
        ExtenderConsultation, "_kept", lambda self, by, reply, offered: list(offered)
    )
    assert "where an extender bars it" in found(config=EXTENDERS_CONFIG).error


@pytest.mark.slow
def test_a_call_that_is_dropped_at_its_timeout_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: a call that times out is dropped, so its attempt never ends."""

    def serve_due(self: PendingExtenderCalls) -> None:
        for effect in self._deadlines.due(self._context.now):
            self._pending.pop(effect, None)

    monkeypatch.setattr(PendingExtenderCalls, "serve_due", serve_due)
    assert found(config=EXTENDERS_CONFIG) is not None


@pytest.mark.slow
def test_a_failed_extender_bind_that_counts_as_unbound_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: an extender that reports an error has not bound the pod."""

    def doubt(self: BindingCycles, binding_cycle: PodRecord, text: str) -> None:
        self._fail(binding_cycle, error(text))

    monkeypatch.setattr(BindingCycles, "_outcome_unknown", doubt)
    assert found(config=EXTENDERS_CONFIG) is not None


def test_a_reply_that_is_applied_before_an_older_watch_event_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: the events of a call are applied as they came."""
    monkeypatch.setattr("stowplan.scheduler.scheduler.watch_events_first", lambda events: events)
    assert "which it observed as bound" in found(771586, config=EXTENDERS_CONFIG).error


# Failure reports.


@pytest.mark.slow
def test_a_failure_prints_seed_faults_and_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BindFailed, "is_definite", True)
    failure = found(shrinks=True)
    text = str(failure)
    assert text.startswith(f"seed {failure.seed}: ")
    for place in range(len(failure.schedule)):
        spared = failure.schedule[:place] + failure.schedule[place + 1 :]
        assert run_with_faults(failure.seed, BASE_CONFIG, spared) is None, (
            f"{failure.schedule[place]} is not needed"
        )
    assert all(str(fault) in text for fault in failure.schedule)
    assert " -> " in text
    assert "Bind effect=" in text
    again = run_with_faults(failure.seed, BASE_CONFIG, failure.schedule)
    assert again is not None
    assert str(again) == text


def test_faults_that_a_failure_does_not_need_are_removed() -> None:
    schedule = [ScheduledFault(at, "restart") for at in range(12)]
    needed = {3, 4, 11}

    def fails(tried: list[ScheduledFault]) -> bool:
        return needed <= {fault.at for fault in tried}

    assert {fault.at for fault in shrink_schedule(schedule, fails)} == needed


# Results do not depend on the hash seed.

SEEDS = ("1", "2", "3", "4")


@pytest.mark.slow
def test_two_hash_seeds_give_the_same_event_log() -> None:
    first, second = event_log_of("1", *SEEDS), event_log_of("2", *SEEDS)
    assert first == second
    assert len(first.splitlines()) > 500


@pytest.mark.slow
def test_effects_in_the_order_of_a_set_are_found() -> None:
    """Wrong: unschedulable pods that an event may help are gathered in a set."""
    assert event_log_of("1", *SEEDS, "--wrong") != event_log_of("2", *SEEDS, "--wrong")


def event_log_of(hash_seed: str, *arguments: str) -> bytes:
    """Event logs of runs in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tests.fault_runs.configs", "--test-plugins", "--log", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    ).stdout
