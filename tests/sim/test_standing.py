"""Refusals that are counted by class are those of attempts pod by pod."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.assembly import configuration_of
from stowplan.assembly.build import machine_for
from stowplan.objects.pod import Pod
from stowplan.scheduler import MachineOptions
from stowplan.scheduler.standing import Standing
from stowplan.sim.agenda import SECOND
from stowplan.sim.churn import Churn
from stowplan.sim.cluster import Cluster
from stowplan.sim.replay import Replay, ReplayOptions
from stowplan.sim.series import Series, Sizes
from stowplan.sim.stays import stayed
from stowplan.sim.world import RUN_ANNOTATION
from stowplan.testing import make
from tests.soak import examples

DAWN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SIZES = (("1", "1Gi"), ("3", "2Gi"), ("2", "7Gi"), ("7", "1Gi"), ("9", "1Gi"))


def overloaded(n_nodes: int, n_pods: int, seed: int, priorities: int = 1) -> Cluster:
    """Pods of a few templates that come faster than they leave; those of the last fit nowhere."""
    dice = np.random.default_rng(seed)
    templates = [
        make.pod("t", cpu=cpu, memory=memory, priority=priority).spec
        for cpu, memory in SIZES
        for priority in range(priorities)
    ]
    pods: list[Pod] = []
    for index in range(n_pods):
        at = DAWN + datetime.timedelta(seconds=int(dice.integers(0, 4 * n_pods)))
        pod = make.pod(f"p{index:03d}")
        meta = replace(
            pod.metadata,
            creation_timestamp=at,
            annotations={RUN_ANNOTATION: str(int(dice.integers(5, 900)))},
        )
        spec = templates[int(dice.integers(len(templates)))]
        pods.append(replace(pod, metadata=meta, spec=spec))
    nodes = [make.node(f"n{i}", cpu="8", memory="16Gi") for i in range(n_nodes)]
    return Cluster(nodes, pods)


def replayed(
    cluster: Cluster, seed: int, *, counts: bool, options: ReplayOptions | None = None
) -> tuple[Replay, tuple[Any, ...]]:
    """The run, and all that is written of it."""
    machine = machine_for(
        *configuration_of(None, "test"),
        dice=np.random.default_rng(seed),
        options=MachineOptions(counts_repeats=counts),
        engine="compiled",
    )
    run = Replay(cluster, machine, options or ReplayOptions(), seed)
    series = Series(Sizes(cluster.pending()))

    def sample(now: int) -> None:
        series.take(now, machine)
        machine.validate()

    run.run(sample, 40 * SECOND)
    placements = [stayed(stay, run) for stay in run.stays.values()]
    return run, (placements, series.csv(), run.refusals, run.binds, run.evicted, run.agenda.now)


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


def in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Standing, "_order", lambda self, slots: np.arange(slots.shape[0]))


def room_is_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first class is held to fit nowhere."""
    may_fit = Standing._may_fit

    def wrong(self: Standing, snapshot: Any) -> Any:
        found = may_fit(self, snapshot)
        found[0] = False
        return found

    monkeypatch.setattr(Standing, "_may_fit", wrong)


def refusals_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replay, "_repeated", lambda self, entry, n_repeats: None)


@pytest.mark.parametrize("wrong", [in_any_order, room_is_overlooked, refusals_are_lost])
def test_wrong_counting_is_caught(
    wrong: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = [overloaded(2, 80, seed) for seed in range(3)]
    right = [replayed(cluster, 0, counts=False)[1] for cluster in clusters]
    assert [replayed(cluster, 0, counts=True)[1] for cluster in clusters] == right
    wrong(monkeypatch)
    assert [replayed(cluster, 0, counts=True)[1] for cluster in clusters] != right


def test_attempts_of_an_overloaded_replay_are_few() -> None:
    """Pods are attempted when they come, and where one of their class may fit."""
    cluster = overloaded(2, 150, 1)
    run, _ = replayed(cluster, 1, counts=True)
    assert run.refusals > 30 * len(cluster.pods)
    assert run.machine.queue.cycle <= 4 * len(cluster.pods)
