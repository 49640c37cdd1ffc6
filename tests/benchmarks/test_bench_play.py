"""Playback: measured times and waits of pods."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, cast

import pytest

from stowplan.benchmarks import playback
from stowplan.benchmarks.benchmark_objects import BenchmarkClient
from stowplan.benchmarks.benchmark_workload import BenchmarkWorkload, HandleCall, pods_added
from stowplan.benchmarks.playback import IDLE_MAX, Playback, patched
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Bind, Effect, Evict, Wake
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.scheduler import Scheduler
from stowplan.testing import builders

A, B, C = (builders.pod(name, uid=name) for name in "abc")


class Scripted:
    """A scheduler stub with given answers per call, empty afterwards."""

    def __init__(self, *answers: list[Effect]) -> None:
        self.queue = self
        self.active: tuple[()] = ()
        self.bindings: tuple[()] = ()
        self.batches: list[tuple[int, list[Event]]] = []
        self._answers = iter(answers)

    def handle(self, events: Iterable[Event], now: int, heads_max: int) -> list[Effect]:
        self.batches.append((now, list(events)))
        return next(self._answers, [])


@pytest.fixture(autouse=True)
def seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that advances one second per reading, so each call takes one second."""
    ticks = itertools.count()
    monkeypatch.setattr(playback.time, "perf_counter", lambda: float(next(ticks)))


def play(workload: BenchmarkWorkload, *answers: list[Effect]) -> tuple[Playback, Scripted]:
    scheduler = Scripted(*answers)
    made = Playback(cast(Scheduler, cast(Any, scheduler)), workload, BenchmarkClient())
    made.prepare()
    scheduler.batches.clear()
    made.run()
    return made, scheduler


def bind(pod: Pod, number: int = 1) -> Bind:
    return Bind(number, 1, pod.uid, pod.namespace, pod.name, "n1")


def waiting(*calls: list[Pod], refused: bool = False) -> BenchmarkWorkload:
    uids = frozenset(pod.uid for pods in calls for pod in pods)
    return BenchmarkWorkload([], [HandleCall(1, pods_added(pods)) for pods in calls], uids, refused)


def test_a_pod_waits_from_the_call_that_takes_it_to_the_end_of_that_which_binds_it() -> None:
    found, _ = play(waiting([A, B], [C]), [bind(A)], [bind(B), bind(C)])
    assert found.waits == {"a": 1.0, "b": 2.0, "c": 1.0}
    assert found.seconds == 2.0


def test_the_clock_ends_with_the_last_binding_that_is_awaited() -> None:
    workload = waiting([A], [B])._replace(awaited=frozenset("a"))
    found, _ = play(workload, [bind(A)], [bind(B)])
    assert found.waits == {"a": 1.0}
    assert found.seconds == 1.0
    assert len(found.calls) == 2


def test_only_the_first_end_of_a_pod_counts() -> None:
    found, _ = play(waiting([A], [B]), [bind(A)], [bind(A, 2), bind(B)])
    assert found.waits["a"] == 1.0


def test_a_refused_pod_has_ended_where_refusals_are_awaited() -> None:
    patch = to_do.PatchStatus(1, 1, "a", "default", "a", "Unschedulable", "0/0 nodes")
    found, _ = play(waiting([A], refused=True), [bind(A), patch])
    assert found.waits == {"a": 1.0}
    found, _ = play(waiting([A], refused=True), [bind(A)])
    assert not found.waits


def test_a_nomination_is_no_refusal() -> None:
    patch = to_do.PatchStatus(1, 1, "a", "default", "a", nominated_node="n1")
    found, _ = play(waiting([A], refused=True), [patch])
    assert not found.waits


def test_victims_go_in_the_next_call() -> None:
    workload = waiting([A])._replace(before=pods_added([builders.pod("v", uid="v", on="n1")]))
    evict = Evict(7, 1, "v", "default", "v", "a", "")
    found, scheduler = play(workload, [], [evict], [bind(A)])
    kinds = [[type(event) for event in events] for _, events in scheduler.batches]
    assert kinds == [[happened.PodAdded], [happened.EvictDone, happened.PodDeleted]]
    assert found.waits == {"a": 2.0}


def test_time_advances_to_the_next_wake() -> None:
    found, scheduler = play(waiting([A]), [Wake(1, 1, 500)], [bind(A)])
    assert [now for now, _ in scheduler.batches] == [1, 500]
    assert found.waits == {"a": 2.0}


def test_pods_that_never_end_are_given_up() -> None:
    found, scheduler = play(waiting([A]), *[[Wake(i, 1, i)] for i in range(100)])
    assert len(scheduler.batches) == 1 + IDLE_MAX
    assert not found.waits
    found, scheduler = play(waiting([A]))
    assert len(scheduler.batches) == 1


def test_taking_events_in_ends_with_the_last_call() -> None:
    calls = [HandleCall(1, [happened.Tick()] * 3), HandleCall(1, [happened.Tick()])]
    found, _ = play(BenchmarkWorkload([], calls))
    assert found.calls == [(1.0, 3), (1.0, 1)]
    assert found.seconds == 2.0


def test_confirmations_say_what_was_decided() -> None:
    patch = to_do.PatchStatus(1, 1, "b", "default", "b", "Unschedulable", "no", "n2")
    found, scheduler = play(waiting([A, B]), [bind(A), patch])
    scheduler.batches.clear()
    assert found.confirm() == 2.0
    (_, events), *_ = scheduler.batches
    assert events[0] == happened.BindDone(1, "a")
    assert isinstance(events[1], happened.PodUpdated)
    assert events[1].pod == builders.pod("a", uid="a", on="n1")
    assert events[2] == happened.PodUpdated(patched(B, patch))
    assert patched(B, patch).status.nominated_node_name == "n2"
    assert patched(B, patch).status.conditions[0].message == "no"
