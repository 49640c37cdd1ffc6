"""Storms: whatever goes wrong, nothing happens that never may, and nobody is forgotten."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.cache import Cache
from stowplan.messages.events import PodRead
from stowplan.objects.pod import Pod
from stowplan.queue.inflight import InFlight
from stowplan.scheduler.binding import Bindings
from stowplan.scheduler.journey import Stage
from stowplan.sim.faults import Fault, shrunk
from stowplan.sim.storm import Failure, first_failure, weathered
from tests.sim.storms import KIT, MANNED
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
    ],
)
def test_a_storm_that_once_found_something(seed: int, what: str) -> None:
    failure = first_failure(range(seed, seed + 1), KIT)
    assert failure is None, f"{what}: {failure}"


@pytest.mark.soak
@pytest.mark.parametrize("number", range(100))
def test_a_hundred_thousand_storms(number: int) -> None:
    failure = first_failure(part(number, SEEDS_SOAKED), KIT)
    assert failure is None, str(failure)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_storms_with_a_crew(number: int) -> None:
    failure = first_failure(part(number), MANNED)
    assert failure is None, str(failure)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(10))
def test_ten_thousand_storms_with_a_crew(number: int) -> None:
    failure = first_failure(part(number, SEEDS_SOAKED), MANNED)
    assert failure is None, str(failure)


# Planted bugs.


def found() -> Failure:
    failure = first_failure(FOUND_WITHIN, KIT)
    assert failure is not None, "no storm showed the mistake"
    return failure


@pytest.mark.slow
def test_a_lost_unreserve_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: what failed is forgotten, and plugins are not told."""

    def undo(self: Bindings, uid: str, journey: Any) -> None:
        monkeypatch.setattr(self, "_tell", lambda *told: None)
        right(self, uid, journey)
        monkeypatch.undo()
        plant()

    def plant() -> None:
        monkeypatch.setattr(Bindings, "_undo", undo)

    right = Bindings._undo
    plant()
    assert "holds a cabin" in found().what


@pytest.mark.slow
def test_a_bind_reply_that_is_trusted_over_the_watch_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: a reply that says nothing certain counts as a refusal; the watch would know."""
    monkeypatch.setattr("stowplan.scheduler.binding.is_definite", lambda code: True)
    failure = found()
    assert any(fault.kind in ("bind reply lost", "bind late") for fault in failure.plan)


@pytest.mark.slow
def test_an_event_that_is_dropped_between_pop_and_failure_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: what happens while a pod is in flight is not kept for it."""
    monkeypatch.setattr(InFlight, "note", lambda self, *happening: None)
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

    def pod_read(self: Bindings, event: PodRead) -> None:
        journey = self._journeys.get(event.uid)
        if journey is not None and journey.stage is Stage.DOUBTFUL:
            self._undo(event.uid, journey)

    monkeypatch.setattr(Bindings, "pod_read", pod_read)
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


# Telling.


@pytest.mark.slow
def test_a_failure_tells_seed_faults_and_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stowplan.scheduler.binding.is_definite", lambda code: True)
    failure = found()
    text = str(failure)
    assert text.startswith(f"seed {failure.seed}: ")
    for place in range(len(failure.plan)):
        spared = failure.plan[:place] + failure.plan[place + 1 :]
        assert weathered(failure.seed, KIT, spared) is None, f"{failure.plan[place]} is not needed"
    assert all(str(fault) in text for fault in failure.plan)
    assert " -> " in text
    assert "Bind effect=" in text
    again = weathered(failure.seed, KIT, failure.plan)
    assert again is not None
    assert str(again) == text


def test_what_a_failure_does_not_need_is_left_out() -> None:
    plan = [Fault(at, "restart") for at in range(12)]
    needed = {3, 4, 11}

    def fails(tried: list[Fault]) -> bool:
        return needed <= {fault.at for fault in tried}

    assert {fault.at for fault in shrunk(plan, fails)} == needed


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
        [sys.executable, "-m", "tests.sim.storms", "--manned", "--story", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    ).stdout
