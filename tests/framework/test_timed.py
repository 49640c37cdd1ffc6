"""A framework that is timed: the same answers, and what it counts."""

from __future__ import annotations

from itertools import count

from stowplan.assembly import build
from stowplan.assembly.build import configuration_of, frameworks_for, scheduler_for
from stowplan.columns.nodetable import table_of
from stowplan.cycle import CycleDecider, decide
from stowplan.framework import Framework, Snapshot
from stowplan.framework.metrics import Labels, Metrics
from stowplan.framework.runtime.timed_framework import (
    EVALUATIONS,
    PLUGIN_SECONDS,
    POINT_SECONDS,
    PREEMPTIONS,
    SAMPLED_EVERY,
    TimedFramework,
)
from stowplan.messages.effects import Evict
from stowplan.messages.events import NodeAdded, PodAdded
from stowplan.scheduler.timed_scheduler import EVENT_SECONDS
from stowplan.testing import node, pod

NODES = [node(f"n{i}", cpu="4", labels={"disk": "ssd" if i % 2 else "hdd"}) for i in range(6)]
PODS = [
    pod("plain", cpu="1"),
    pod("picky", cpu="1", node_selector={"disk": "ssd"}),
    pod("huge", cpu="40"),
]


def snapshot() -> Snapshot:
    return Snapshot(table_of(NODES))


def framework(metrics: Metrics | None = None) -> Framework:
    (found,) = frameworks_for(*configuration_of(None, "default"), metrics=metrics).values()
    return found


def counted(metrics: Metrics, name: str, **labels: str) -> float:
    found = {**metrics.counters, **{k: d.count for k, d in metrics.histograms.items()}}
    return sum(n for (own, given), n in found.items() if own == name and has(given, labels))


def has(given: Labels, labels: dict[str, str]) -> bool:
    return labels.items() <= dict(given).items()


def test_it_decides_as_one_that_is_not_timed() -> None:
    metrics = Metrics(count().__next__)
    timed, plain = framework(metrics), framework()
    assert isinstance(timed, TimedFramework)
    for one in PODS:
        ours, theirs = (decide(one, snapshot(), which) for which in (timed, plain))
        assert (ours.node_name, ours.message) == (theirs.node_name, theirs.message)


def test_points_are_timed_always_and_plugins_in_one_attempt_of_ten() -> None:
    metrics = Metrics(count().__next__)
    timed = framework(metrics)
    n_attempts = 2 * SAMPLED_EVERY + 1
    for _ in range(n_attempts):
        decide(PODS[1], snapshot(), timed)
    point = {"profile": "default-scheduler", "status": "Success"}
    for name in ("PreFilter", "Filter", "PreScore", "Score"):
        assert counted(metrics, POINT_SECONDS, extension_point=name, **point) == n_attempts
    fit = {"plugin": "NodeResourcesFit"}
    for name in ("PreFilter", "Filter", "Score"):
        assert counted(metrics, PLUGIN_SECONDS, extension_point=name, **fit) == 3
        assert counted(metrics, EVALUATIONS, extension_point=name, **fit) == n_attempts
    # Who skips a pod has not been asked about it.
    ports = {"plugin": "NodePorts"}
    assert counted(metrics, EVALUATIONS, **ports) == 0
    skipped = {"extension_point": "PreFilter", "status": "Skip"}
    assert counted(metrics, PLUGIN_SECONDS, **skipped, **ports) == 3
    assert counted(metrics, PREEMPTIONS) == 0


def test_a_search_for_room_is_counted() -> None:
    metrics = Metrics(count().__next__)
    decide(PODS[2], snapshot(), framework(metrics))
    assert counted(metrics, PREEMPTIONS) == 1
    refused = {"extension_point": "PostFilter", "status": "Unschedulable"}
    assert counted(metrics, POINT_SECONDS, **refused) == 1


def test_a_timed_machine_reports_the_events_it_has_handled() -> None:
    metrics = Metrics(count().__next__)
    scheduler = build.scheduler_for(
        *configuration_of(None, "default"), engine="walk", metrics=metrics
    )
    running = pod("there", on="n0")
    scheduler.handle([*map(NodeAdded, NODES), PodAdded(PODS[0]), PodAdded(running)], 0)
    assert counted(metrics, EVENT_SECONDS, event="NodeAdd") == len(NODES)
    assert counted(metrics, EVENT_SECONDS, event="UnschedulablePodAdd") == 1
    assert counted(metrics, EVENT_SECONDS, event="AssignedPodAdd") == 1


def test_preemptions_that_no_plugin_is_called_for_are_counted() -> None:
    metrics = Metrics(count().__next__)
    scheduler = scheduler_for(*configuration_of(None, "default"), metrics=metrics)
    full = [NodeAdded(each) for each in NODES]
    low = [PodAdded(pod(f"low-{i}", cpu="4", priority=-1, on=each.name, uid=f"low-{i}"))
           for i, each in enumerate(NODES)]  # fmt: skip
    high = [PodAdded(pod(f"high-{i}", cpu="4", priority=1, uid=f"high-{i}")) for i in range(4)]
    effects = scheduler.handle([*full, *low, *high], 0)
    assert sum(isinstance(effect, Evict) for effect in effects) == 4
    decider = scheduler.pod_lane.decider
    assert isinstance(decider, CycleDecider)
    assert decider.n_walked == 1
    assert counted(metrics, PREEMPTIONS) == 4
