"""Refusals counted per class equal the attempts pod by pod."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.assembly import configuration_of
from stowplan.assembly.build import scheduler_for
from stowplan.cycle.engine.card_groups import CardNeeds
from stowplan.cycle.engine.fit_check import ClassFitCheck
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.cluster_reader import Cluster
from stowplan.messages.effects import Effect
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.scheduler import SchedulerOptions
from stowplan.scheduler.lanes.unschedulable_classes import SEQ, UnschedulableClasses
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.cluster.node_churn import Churn
from stowplan.simulation.replay import Replay, ReplayOptions
from stowplan.simulation.results.pod_history import placement_of
from stowplan.simulation.results.time_series import PodSizes, TimeSeries
from stowplan.testing import builders
from tests.plugins.gpu_share.gpu_cases import configuration, gpu_node, gpu_pod
from tests.property.test_filtering_cards_property import filtering
from tests.soak import examples

DAWN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SIZES = (("1", "1Gi"), ("3", "2Gi"), ("2", "7Gi"), ("7", "1Gi"), ("9", "1Gi"))


def overloaded(
    n_nodes: int, n_pods: int, seed: int, priorities: int = 1, longest_s: int = 900
) -> Cluster:
    """Pods of a few templates in an overloaded cluster; the last template fits nowhere."""
    rng = np.random.default_rng(seed)
    templates = [
        builders.pod("t", cpu=cpu, memory=memory, priority=priority).spec
        for cpu, memory in SIZES
        for priority in range(priorities)
    ]
    pods: list[Pod] = []
    for index in range(n_pods):
        at = DAWN + datetime.timedelta(seconds=int(rng.integers(0, 4 * n_pods)))
        pod = builders.pod(f"p{index:03d}")
        meta = replace(
            pod.metadata,
            creation_timestamp=at,
            annotations={RUN_ANNOTATION: str(int(rng.integers(5, longest_s)))},
        )
        spec = templates[int(rng.integers(len(templates)))]
        pods.append(replace(pod, metadata=meta, spec=spec))
    nodes = [builders.node(f"n{i}", cpu="8", memory="16Gi") for i in range(n_nodes)]
    return Cluster(nodes, pods)


CARDS = ((1, 300), (1, 700), (1, 1000), (2, 1000), (0, 0))


def short_of_cards(n_nodes: int, n_pods: int, seed: int) -> Cluster:
    """The same, with requests of cards: where amounts suffice, cards often do not."""
    rng = np.random.default_rng(seed)
    cluster = overloaded(n_nodes, n_pods, seed)
    pods: list[Pod] = []
    for pod in cluster.pods:
        num, milli = CARDS[int(rng.integers(len(CARDS)))]
        models = ("", "", "A")[int(rng.integers(3))]
        cards = gpu_pod("p", num, milli, models=models).metadata.annotations
        notes = {**pod.metadata.annotations, **cards}
        pods.append(replace(pod, metadata=replace(pod.metadata, annotations=notes)))
    nodes = [gpu_node(f"n{i}", 2, "AB"[i % 2], cpu="8") for i in range(n_nodes)]
    return Cluster(nodes, pods)


def replayed(
    cluster: Cluster,
    seed: int,
    *,
    counts: bool,
    options: ReplayOptions | None = None,
    text: str | None = None,
) -> tuple[Replay, tuple[Any, ...]]:
    """The run and all its results."""
    scheduler = scheduler_for(
        *configuration_of(text, "test"),
        rng=np.random.default_rng(seed),
        options=SchedulerOptions(counts_repeats=counts),
        engine="compiled",
    )
    run = Replay(cluster, scheduler, options or ReplayOptions(), seed)
    series = TimeSeries(PodSizes(cluster.pending()))

    def sample(now: int) -> None:
        series.take(now, scheduler)
        scheduler.validate()

    run.run(sample, 40 * SECOND)
    placements = [placement_of(pod_history, run) for pod_history in run.pod_histories.values()]
    return run, (
        placements,
        series.csv(),
        run.refusals,
        run.binds,
        run.evicted,
        run.event_queue.now,
    )


@settings(max_examples=examples(25), deadline=None)
@given(
    st.integers(1, 4),
    st.integers(2, 70),
    st.integers(0, 10**6),
    st.sampled_from([1, 1, 2]),
    st.sampled_from([None, None, Churn(2000, 300)]),
)
def test_counted_refusals_are_those_of_attempts(
    n_nodes: int, n_pods: int, seed: int, priorities: int, churn: Churn | None
) -> None:
    cluster = overloaded(n_nodes, n_pods, seed, priorities)
    options = ReplayOptions(churn=churn)
    _, counted = replayed(cluster, seed, counts=True, options=options)
    _, attempted = replayed(cluster, seed, counts=False, options=options)
    assert counted == attempted


FLUSHED_S = 4000
"""Run time of pods so long that waiting ones are flushed several times between two events."""


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(1, 2), st.integers(5, 20), st.integers(0, 10**6), st.sampled_from([1, 2]))
def test_refusals_between_two_events_are_those_of_attempts(
    n_nodes: int, n_pods: int, seed: int, priorities: int
) -> None:
    cluster = overloaded(n_nodes, n_pods, seed, priorities, FLUSHED_S)
    _, counted = replayed(cluster, seed, counts=True)
    _, attempted = replayed(cluster, seed, counts=False)
    assert counted == attempted


def test_the_scheduler_is_not_called_for_refusals_between_two_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, calls = Scheduler.handle, [0]

    def handle(self: Scheduler, *given: Any) -> list[Effect]:
        calls[-1] += 1
        return right(self, *given)

    monkeypatch.setattr(Scheduler, "handle", handle)
    cluster = overloaded(1, 20, 3, longest_s=FLUSHED_S)
    replayed(cluster, 3, counts=True)
    calls.append(0)
    replayed(cluster, 3, counts=False)
    assert calls[0] < calls[1] / 2


def flushes_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: whatever time has passed, a pod is flushed once."""
    right = UnschedulableClasses.repeat_flushes

    def repeat(
        self: UnschedulableClasses, due: int, until: int, period: int, snapshot: Any
    ) -> bool:
        return right(self, due, min(until, due + 1), period, snapshot)

    monkeypatch.setattr(UnschedulableClasses, "repeat_flushes", repeat)


def flushes_reverse_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: what waits longest comes last."""
    right = UnschedulableClasses.repeat_flushes

    def repeat(
        self: UnschedulableClasses, due: int, until: int, period: int, snapshot: Any
    ) -> bool:
        found = right(self, due, until, period, snapshot)
        self._ledger[SEQ] = -self._ledger[SEQ]
        return found

    monkeypatch.setattr(UnschedulableClasses, "repeat_flushes", repeat)


@pytest.mark.parametrize("wrong", [flushes_are_counted_once, flushes_reverse_the_order])
def test_wrong_counting_between_two_events_is_caught(
    wrong: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = overloaded(1, 20, 3, longest_s=FLUSHED_S)
    right = replayed(cluster, 3, counts=False)[1]
    assert replayed(cluster, 3, counts=True)[1] == right
    wrong(monkeypatch)
    assert replayed(cluster, 3, counts=True)[1] != right


@pytest.mark.parametrize("text", [filtering("best"), configuration(policy="BestFit")])
@settings(max_examples=examples(15), deadline=None)
@given(st.integers(1, 4), st.integers(2, 70), st.integers(0, 10**6))
def test_refusals_for_want_of_cards_are_those_of_attempts(
    text: str, n_nodes: int, n_pods: int, seed: int
) -> None:
    cluster = short_of_cards(n_nodes, n_pods, seed)
    _, counted = replayed(cluster, seed, counts=True, text=text)
    _, attempted = replayed(cluster, seed, counts=False, text=text)
    assert counted == attempted


def test_most_refusals_for_want_of_cards_are_counted() -> None:
    text = filtering("best")
    run, _ = replayed(short_of_cards(2, 80, 1), 1, counts=True, text=text)
    index = run.scheduler.pod_lane.unschedulable_classes
    assert 0 < index.n_attempts < run.refusals / 4


def others_refuse_unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the plugins that refuse are taken to be always the same."""
    monkeypatch.setattr(
        ClassFitCheck, "other_refusers", lambda self: np.zeros(len(self._passes), dtype=np.bool_)
    )


def cards_are_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: no cards suffice."""
    monkeypatch.setattr(
        CardNeeds,
        "suffice",
        lambda self, rows: np.zeros((len(self._num), len(rows)), dtype=np.bool_),
    )


@pytest.mark.parametrize("wrong", [others_refuse_unnoticed, cards_are_overlooked])
def test_wrong_counting_of_cards_is_caught(
    wrong: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = filtering("best")
    clusters = [short_of_cards(1, 50, seed) for seed in (5, 6)]
    right = [replayed(one, 0, counts=False, text=text)[1] for one in clusters]
    wrong(monkeypatch)
    assert any(
        replayed(cluster, 0, counts=True, text=text)[1] != result
        for cluster, result in zip(clusters, right, strict=True)
    )


def in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        UnschedulableClasses, "_order", lambda self, slots: np.arange(slots.shape[0])
    )


def room_is_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the first class counts as unschedulable."""
    may_fit = UnschedulableClasses._may_fit

    def wrong(self: UnschedulableClasses, snapshot: Any) -> Any:
        found = may_fit(self, snapshot)
        found[0][0] = False
        return found

    monkeypatch.setattr(UnschedulableClasses, "_may_fit", wrong)


def refusals_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replay, "_repeated", lambda self, entry, n_repeats: None)


@pytest.mark.parametrize("wrong", [in_any_order, room_is_overlooked, refusals_are_lost])
def test_wrong_counting_is_caught(
    wrong: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = [overloaded(2, 80, seed) for seed in range(3)]
    right = [attempted(seed) for seed in range(3)]
    wrong(monkeypatch)
    assert any(
        replayed(cluster, 0, counts=True)[1] != result
        for cluster, result in zip(clusters, right, strict=True)
    )


@cache
def attempted(seed: int) -> tuple[Any, ...]:
    """The results of attempts pod by pod, which are those of right counting."""
    cluster = overloaded(2, 80, seed)
    found = replayed(cluster, 0, counts=False)[1]
    assert replayed(cluster, 0, counts=True)[1] == found
    return found


def test_attempts_of_an_overloaded_replay_are_few() -> None:
    """Pods are tried on arrival, and when a pod of their class may fit."""
    cluster = overloaded(2, 150, 1)
    run, _ = replayed(cluster, 1, counts=True)
    assert run.refusals > 30 * len(cluster.pods)
    assert run.scheduler.queue.cycle <= 4 * len(cluster.pods)
