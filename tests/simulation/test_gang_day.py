"""A virtual day of gangs beside other pods on a cluster that is two thirds full: every gang starts,
as a whole, while smaller pods keep coming."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from stowplan.framework.clusterevents import ASSIGNED_POD_DELETE, ClusterEvent
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.pod import Pod, PodSchedulingGroup
from stowplan.objects.scheduling_group import (
    GangSchedulingPolicy,
    PodGroupSchedulingPolicy,
    SchedulingGroup,
    SchedulingGroupMeta,
    SchedulingGroupSpec,
)
from stowplan.queue.scheduling_queue import SchedulingQueue
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import simulate
from stowplan.testing import builders

DAY_S, RUN_S = 86_400, 3600
N_NODES, CPUS = 12, 8
GATES = {"GenericWorkload": True, "GangScheduling": True}
WAIT_S_MAX = 3 * RUN_S
"""Longest wait of a gang: some pods that run must end, and some gangs come before it."""


def timed(name: str, at: float, cpu: int, run_s: float, group: str = "") -> Pod:
    pod = builders.pod(name, created_at=at, cpu=str(cpu))
    spec = replace(pod.spec, scheduling_group=PodSchedulingGroup(group)) if group else pod.spec
    meta = replace(pod.metadata, annotations={RUN_ANNOTATION: f"{run_s:.0f}"})
    return replace(pod, metadata=meta, spec=spec)


def day(seed: int) -> Cluster:
    """Plain pods all the time, and a gang of up to half of the cluster every half hour or so."""
    rng = np.random.default_rng(seed)
    nodes = [builders.node(f"n{i}", cpu=str(CPUS)) for i in range(N_NODES)]
    cluster = Cluster(nodes=nodes, pods=[])
    for number, at in enumerate(np.cumsum(rng.exponential(80, DAY_S // 80))):
        run_s = rng.exponential(RUN_S / 2)
        cluster.pods.append(timed(f"plain-{number}", float(at), 1, run_s))
    for number, at in enumerate(np.cumsum(rng.exponential(2000, DAY_S // 2000))):
        name, size = f"gang-{number}", int(rng.integers(2, 13))
        policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(size))
        meta = SchedulingGroupMeta(name=name, namespace="default", uid=name)
        spec = SchedulingGroupSpec(scheduling_policy=policy)
        cluster.objects.append(SchedulingGroup(metadata=meta, spec=spec))
        run_s = rng.uniform(0.2, 1) * RUN_S
        cluster.pods += [
            timed(f"{name}-{index}", float(at), 4, run_s, name) for index in range(size)
        ]
    return cluster


def waits(seed: int) -> dict[str, set[float | None]]:
    """Gang -> seconds from the arrival of its members to their bindings; None for no binding."""
    found: dict[str, set[float | None]] = defaultdict(set)
    until = ReplayOptions(until_s=DAY_S + 2 * WAIT_S_MAX)
    for one in simulate(day(seed), feature_gates=GATES, replay=until, seed=seed).placements:
        name, _, _ = one.pod.partition("/")[2].rpartition("-")
        if name.startswith("gang"):
            bound_s, arrived_s = one.bound_s, one.arrived_s  # type: ignore[attr-defined]
            found[name].add(None if bound_s is None else round(bound_s - arrived_s, 3))
    return found


@pytest.mark.slow
def test_no_gang_starves_in_a_day() -> None:
    found = waits(1)
    assert len(found) > 30
    for name, times in found.items():
        assert len(times) == 1, f"{name} starts in parts: {times}"
        assert None not in times, f"{name} never starts"
    longest = max(wait for times in found.values() for wait in times if wait is not None)
    # Some do wait, so that there is something to starve by.
    assert 0 < longest < WAIT_S_MAX


@pytest.mark.slow
def test_gangs_that_no_departure_wakes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: what runs leaves, and no pod hears of it."""
    move = SchedulingQueue.move

    def deaf(self: SchedulingQueue, event: ClusterEvent, *given: Any, **named: Any) -> None:
        if event is not ASSIGNED_POD_DELETE:
            move(self, event, *given, **named)

    monkeypatch.setattr(SchedulingQueue, "move", deaf)
    monkeypatch.setattr(SchedulingQueue, "flush_unschedulable", lambda *_, **__: None)
    with pytest.raises(AssertionError, match="never starts"):
        test_no_gang_starves_in_a_day()
