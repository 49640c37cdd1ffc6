"""Metrics of group cycles."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stowplan.assembly.deciders import deciders_of
from stowplan.framework.feature_gates import FeatureGates
from stowplan.framework.metrics import Metrics
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.pod import PodSchedulingGroup
from stowplan.objects.scheduling_group import (
    GangSchedulingPolicy,
    PodGroupSchedulingPolicy,
    SchedulingGroup,
    SchedulingGroupMeta,
    SchedulingGroupSpec,
)
from stowplan.scheduler.pod_groups.group_cycle import GroupReport
from stowplan.scheduler.timed_scheduler import (
    EVENT_SECONDS,
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


def test_groups_that_are_placed_together_are_counted_one_by_one() -> None:
    metrics = Metrics()
    scheduler = deciders_of((), gates=GATES).scheduler(metrics=metrics, engine="compiled")
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(2))
    events: list[Event] = [happened.NodeAdded(node("n", cpu="9"))]
    for name in ("g", "h", "i"):
        meta = SchedulingGroupMeta(name=name, namespace="default")
        spec = SchedulingGroupSpec(scheduling_policy=policy)
        events.append(happened.ObjectAdded(SchedulingGroup(metadata=meta, spec=spec)))
        plain = pod(name, cpu="1")
        template = replace(plain.spec, scheduling_group=PodSchedulingGroup(name))
        for number in range(2):
            metadata = replace(plain.metadata, name=f"{name}{number}", uid=f"{name}{number}")
            member = replace(plain, metadata=metadata, spec=template)
            events.append(happened.PodAdded(member))
    reports = []
    observe = scheduler.pod_lane.group_cycles.on_group

    def observed(report: GroupReport) -> None:
        reports.append(report)
        observe(report)

    scheduler.pod_lane.group_cycles.on_group = observed
    scheduler.handle(events, 0)
    assert [(one.key, one.n_together) for one in reports] == [
        ("default/g", 3), ("default/h", 3), ("default/i", 3),
    ]  # fmt: skip
    labels = (("result", "scheduled"), ("profile", "default-scheduler"))
    assert metrics.counters[GROUP_ATTEMPTS, labels] == 3
    assert metrics.histograms[GROUP_ATTEMPT_SECONDS, labels].count == 3
    added = (("event", "UnschedulablePodAdd"),)
    assert metrics.histograms[EVENT_SECONDS, added].count == 6
