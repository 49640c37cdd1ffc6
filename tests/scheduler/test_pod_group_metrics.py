"""Metrics of group cycles."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stowplan.assembly.deciders import deciders_of
from stowplan.framework.feature_gates import FeatureGates
from stowplan.framework.metrics import Metrics
from stowplan.messages import events as happened
from stowplan.objects.pod import PodSchedulingGroup
from stowplan.objects.scheduling_group import SchedulingGroup, SchedulingGroupMeta
from stowplan.scheduler.timed_scheduler import (
    GROUP_ALGORITHM_SECONDS,
    GROUP_ATTEMPT_SECONDS,
    GROUP_ATTEMPTS,
)
from stowplan.testing import node, pod

GATES = FeatureGates(generic_workload=True, gang_scheduling=True)


@pytest.mark.parametrize(("cpu", "result"), [("1", "scheduled"), ("9", "unschedulable")])
@pytest.mark.parametrize("engine", ["walk", "auto"])
def test_attempts_are_counted_by_result(cpu: str, result: str, engine: str) -> None:
    metrics = Metrics()
    scheduler = deciders_of((), gates=GATES).scheduler(metrics=metrics, engine=engine)
    group = SchedulingGroup(metadata=SchedulingGroupMeta(name="g", namespace="default"))
    plain = pod("a", cpu=cpu)
    member = replace(plain, spec=replace(plain.spec, scheduling_group=PodSchedulingGroup("g")))
    events = [
        happened.NodeAdded(node("n", cpu="4")),
        happened.ObjectAdded(group),
        happened.PodAdded(member),
    ]
    scheduler.handle(events, 0, heads_max=1)
    labels = (("result", result), ("profile", "default-scheduler"))
    assert metrics.counters[GROUP_ATTEMPTS, labels] == 1
    assert metrics.histograms[GROUP_ATTEMPT_SECONDS, labels].count == 1
    assert metrics.histograms[GROUP_ALGORITHM_SECONDS, ()].count == 1
