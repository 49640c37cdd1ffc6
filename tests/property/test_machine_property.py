"""The machine against a cluster that answers late, wrongly or not at all.

Each property comes with a realistic wrong variant of the machine, which it is shown to catch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.cache import Cache
from stowplan.columns.nodetable import table_of
from stowplan.cycle import CycleDecider, Decision
from stowplan.framework import OK, Framework, Snapshot
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import BindFailed, Event, PodRead
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.volumes.volume_binding import VolumeBinding
from stowplan.plugins.volumes.volume_reservation import AssumedPodVolumes
from stowplan.queue.pod_record import PodRecord
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.lanes import profile_swap
from stowplan.testing import node, pod
from tests.property.wrong import assert_caught
from tests.scenarios.script import made
from tests.scheduler.random_walk import ROUGH, RandomWalk
from tests.soak import examples

SEEDS = st.integers(0, 2**32 - 1)
STEPS = st.integers(1, 80)
UNCERTAIN = replace(ROUGH, late=0, lost=3)
"""Faults after which a pod may be bound or not, but not later than anybody says."""


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# No pod is lost.


def nothing_is_lost(seed: int, n_steps: int) -> None:
    """At every step each pod is in exactly one place; when the faults stop, each that fits
    somewhere is bound. No pod is bound before its claims are."""
    walk = RandomWalk(rng(seed))
    for _ in range(n_steps):
        walk.step()
    walk.settle()
    walk.check_rest()


@settings(max_examples=examples(25))
@given(SEEDS, STEPS)
def test_no_pod_is_lost(seed: int, n_steps: int) -> None:
    nothing_is_lost(seed, n_steps)


def test_a_pod_that_is_forgotten_after_a_read_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a read that finds no pod ends the journey; the watch, it is hoped, knows why."""

    def settle(self: BindingCycles, record: PodRecord, event: PodRead) -> None:
        if event.pod is None:
            self._undo(record)
        else:
            right(self, record, event)

    right = BindingCycles.settle
    monkeypatch.setattr(BindingCycles, "settle", settle)
    assert_caught(nothing_is_lost, SEEDS, STEPS, known=(11346, 68))


def test_a_pod_that_is_bound_before_its_claims_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: what the API has taken is done."""
    monkeypatch.setattr(VolumeBinding, "pre_bind_progress", lambda self: OK)
    assert_caught(nothing_is_lost, SEEDS, STEPS, known=(1430100, 20))


def test_a_volume_that_stays_assumed_without_a_pod_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: a reservation is forgotten and not taken back."""
    monkeypatch.setattr(AssumedPodVolumes, "revert", lambda self, store: None)
    assert_caught(nothing_is_lost, SEEDS, STEPS, known=(458766, 51))


# No pod is lost when the configuration changes.


def nothing_is_lost_by_changes(seed: int, n_steps: int) -> None:
    """As `nothing_is_lost`, while profiles, gates, backoffs and scheduler names change."""
    walk = RandomWalk(rng(seed), reloads=True)
    for _ in range(n_steps):
        walk.step()
    walk.settle()
    walk.check_rest()


@settings(max_examples=examples(12))
@given(SEEDS, STEPS)
def test_no_pod_is_lost_when_the_configuration_changes(seed: int, n_steps: int) -> None:
    nothing_is_lost_by_changes(seed, n_steps)


def test_pods_of_a_new_name_that_are_not_queued_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: only pods that arrive later are scheduled."""
    monkeypatch.setattr(profile_swap, "_adopt", lambda context, added: None)
    assert_caught(nothing_is_lost_by_changes, SEEDS, STEPS, known=(221188, 69))


def test_pods_that_a_new_profile_does_not_try_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a gate that is gone keeps its pods."""
    monkeypatch.setattr(profile_swap, "retry_all", lambda queue, changed, now: None)
    assert_caught(nothing_is_lost_by_changes, SEEDS, STEPS, known=(72, 72))


# No binding that does not fit.


def every_binding_fits(seed: int, n_steps: int) -> None:
    """Each binding fits into the scheduler's view of its node at the time, and without strangers
    no node is over-committed in truth."""
    calm = RandomWalk(rng(seed), UNCERTAIN, strangers=False)
    rough = RandomWalk(rng(seed))
    for _ in range(n_steps):
        rough.step()
        calm.step()
        calm.check_truth()


@settings(max_examples=examples(30))
@given(SEEDS, STEPS)
def test_no_binding_is_asked_for_that_does_not_fit(seed: int, n_steps: int) -> None:
    every_binding_fits(seed, n_steps)


def test_decisions_on_an_old_snapshot_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: one snapshot serves several decisions, though the first of them has taken room."""

    class Stale(CycleDecider):
        def __init__(self) -> None:
            super().__init__()
            self._age = 0
            self._copy: Snapshot | None = None

        def decide(self, pod: Pod, snapshot: Snapshot, framework: Framework, rng: Any) -> Decision:
            self._age += 1
            if self._copy is None or self._age % 3 == 0:
                nodes = snapshot.nodes
                table = table_of(nodes.nodes)
                for name, pods in zip(nodes.names, nodes.pods, strict=True):
                    for info in pods:
                        table.add_pod(info, name)
                self._copy = Snapshot(table, snapshot.object_store, snapshot.nominations)
            return super().decide(pod, self._copy, framework, rng)

    monkeypatch.setattr("tests.scenarios.script.CycleDecider", Stale)
    assert_caught(every_binding_fits, SEEDS, STEPS, known=(25415, 39))


def test_a_binding_that_is_undone_without_a_read_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: a timeout counts as a refusal, so the room is given to others."""
    monkeypatch.setattr(BindFailed, "is_definite", True)
    assert_caught(every_binding_fits, SEEDS, STEPS, known=(235265, 63))


# The same whatever comes in one batch.


class Arrivals:
    """Nodes, and pods of one priority that come in order: nothing but room decides.

    Whether a binding has been confirmed or not must make no difference to where the next goes.
    """

    def __init__(self, seed: int) -> None:
        rolls = rng(seed)
        self.nodes: list[Node] = [
            node(f"n{i}", cpu=str(rolls.integers(1, 6)), memory=f"{rolls.integers(1, 6)}Gi")
            for i in range(int(rolls.integers(1, 5)))
        ]
        self.pods: list[Pod] = [
            pod(f"p{i}", cpu=str(rolls.integers(0, 3)), memory=f"{rolls.integers(0, 3)}Gi")
            for i in range(int(rolls.integers(1, 20)))
        ]

    def bindings(self, rolls: np.random.Generator | None) -> dict[str, str]:
        """Pod -> node. rolls: how much comes at once and what is confirmed when; None: one pod
        after the other, each confirmed before the next."""
        scheduler = made()
        scheduler.handle([happened.NodeAdded(each) for each in self.nodes], 0)
        by_key = {each.key: each for each in self.pods}
        waiting: list[Event] = [happened.PodAdded(each) for each in self.pods]
        replies: list[list[Event]] = []
        found: dict[str, str] = {}
        while waiting or replies:
            n_pods = 1 if rolls is None else int(rolls.integers(0, 6))
            batch, waiting = waiting[:n_pods], waiting[n_pods:]
            for reply in tuple(replies):
                if rolls is None or rolls.integers(0, 3) == 0:
                    batch.append(reply.pop(0))
                    replies = [one for one in replies if one]
            for effect in scheduler.handle(batch, 0):
                if isinstance(effect, to_do.Bind):
                    found[effect.name] = effect.node
                    replies.append(confirmation(effect, by_key[f"default/{effect.name}"]))
        return found


def confirmation(effect: to_do.Bind, bound: Pod) -> list[Event]:
    seen = replace(bound, spec=replace(bound.spec, node_name=effect.node))
    return [happened.BindDone(effect.effect, effect.uid), happened.PodUpdated(seen)]


def batching_does_not_matter(seed: int, batching: int) -> None:
    arrivals = Arrivals(seed)
    assert arrivals.bindings(rng(batching)) == arrivals.bindings(None)


@settings(max_examples=examples(40))
@given(SEEDS, SEEDS)
def test_other_batches_lead_to_the_same_bindings(seed: int, batching: int) -> None:
    batching_does_not_matter(seed, batching)


def test_room_that_is_given_up_before_the_watch_confirms_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: the API's word ends the assumption, and the watch has not shown the pod yet."""
    monkeypatch.setattr(Cache, "expect", lambda self, uid, now: self.forget(uid))
    assert_caught(batching_does_not_matter, SEEDS, SEEDS)


# The same whatever the hash seed.

VOYAGES = ("1", "2", "3", "4")


def test_two_hash_seeds_give_the_same_effects() -> None:
    first, second = logged("1", *VOYAGES), logged("2", *VOYAGES)
    assert first == second
    assert len(first.splitlines()) > 500


def test_effects_in_the_order_of_a_set_are_noticed() -> None:
    """Wrong: parked pods that an event may help are gathered in a set."""
    assert logged("1", *VOYAGES, "--wrong") != logged("2", *VOYAGES, "--wrong")


def logged(hash_seed: str, *arguments: str) -> bytes:
    """What machines do in a process of their own."""
    return subprocess.run(
        [sys.executable, "-m", "tests.scheduler.effect_log", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    ).stdout
