"""A changed configuration of profiles: what it changes, and what stays as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import ConfigurationChanged
from stowplan.objects.encoding.duration import SECOND
from stowplan.queue import QueueOptions
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.scheduler.lanes import profile_swap
from stowplan.testing import node, pod
from tests.scenarios.script import profiles_text
from tests.scheduler.scheduler_driver import SchedulerDriver
from tests.scheduler.transition_trace import TransitionTrace

FILE = "scheduler.yaml"
NODES = [node(name, cpu=cpu) for name, cpu in (("n1", "4"), ("n2", "8"), ("n3", "2"))]


def text(strategy: str = "LeastAllocated", **top: Any) -> str:
    """A configuration with one profile that scores by free resources."""
    scoring = {"type": strategy, "resources": [{"name": "cpu", "weight": 1}]}
    args = {"scoringStrategy": scoring}
    profile = {
        "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": FIT}]}},
        "pluginConfig": [{"name": FIT, "args": args}],
    }
    return configuration(profile, **top)


FIT = "NodeResourcesFit"


def configuration(*profiles: dict[str, Any], **top: Any) -> str:
    head = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    return json.dumps(head | {"profiles": list(profiles)} | top)


def started(content: str, *, leads: bool = True, repeats: bool = False) -> Scheduler:
    options = SchedulerOptions(leads=leads, counts_repeats=repeats)
    scheduler = deciders_of([ConfigText(content, FILE)]).scheduler(options=options)
    TransitionTrace().follow(scheduler)
    scheduler.handle([happened.NodeAdded(one) for one in NODES], 0)
    return scheduler


def change(content: str) -> ConfigurationChanged:
    return ConfigurationChanged(content, FILE, has_profiles=True, has_sessions=False)


def bound(effects: list[Effect]) -> dict[str, str]:
    return {one.name: one.node for one in effects if isinstance(one, to_do.Bind)}


def arrivals(prefix: str, n_pods: int = 6) -> list[happened.PodAdded]:
    return [
        happened.PodAdded(pod(f"{prefix}{i}", cpu="1", uid=f"{prefix}{i}")) for i in range(n_pods)
    ]


def swapped_and_fresh(*, repeats: bool = False) -> tuple[dict[str, str], dict[str, str]]:
    """Where pods go after a change, and where they go by a scheduler that began with it."""
    changed, fresh = (
        started(text(), repeats=repeats),
        started(text("MostAllocated"), repeats=repeats),
    )
    big = happened.PodAdded(pod("big", cpu="16"))
    places = []
    for scheduler in (changed, fresh):
        scheduler.handle([big], SECOND)
    changed.handle([change(text("MostAllocated"))], 2 * SECOND)
    for scheduler in (changed, fresh):
        effects = scheduler.handle(arrivals("p"), 60 * SECOND)
        scheduler.validate()
        places.append(bound(effects))
    return places[0], places[1]


@pytest.mark.parametrize("repeats", [False, True])
def test_pods_go_where_they_go_by_a_scheduler_that_began_with_it(*, repeats: bool) -> None:
    after, fresh = swapped_and_fresh(repeats=repeats)
    assert after == fresh
    assert len(after) == 6
    assert after != bound(started(text()).handle(arrivals("p"), 60 * SECOND))


def test_control_profiles_that_are_not_swapped_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the lane keeps its frameworks."""
    monkeypatch.setattr(
        "stowplan.scheduler.lanes.pod_lane.swap_profiles",
        lambda *_: profile_swap.SwapCounts({}, {}),
    )
    after, fresh = swapped_and_fresh()
    assert after != fresh


def test_unschedulable_pods_are_tried_by_the_new_profile() -> None:
    tainted = {"plugins": {"multiPoint": {"disabled": [{"name": "NodeUnschedulable"}]}}}
    scheduler = started(configuration({}))
    cordoned = [happened.NodeUpdated(node(one.name, cpu="4", cordoned=True)) for one in NODES]
    assert bound(scheduler.handle([*cordoned, *arrivals("p", 1)], SECOND)) == {}
    effects = scheduler.handle([change(configuration(tainted))], 2 * SECOND)
    assert list(bound(effects)) == ["p0"]
    scheduler.validate()


def test_order_and_failures_of_waiting_pods_are_kept() -> None:
    scheduler = started(text(), leads=False)
    pods = [pod(f"p{i}", priority=i % 3) for i in range(9)]
    scheduler.handle([happened.PodAdded(one) for one in pods], SECOND)
    before = [entry.key for entry in scheduler.queue.active.in_order()]
    arrived = {entry.key: entry.added_at for entry in scheduler.queue}
    scheduler.handle([change(text("MostAllocated"))], 5 * SECOND)
    assert [entry.key for entry in scheduler.queue.active.in_order()] == before
    assert {entry.key: entry.added_at for entry in scheduler.queue} == arrived
    scheduler.validate()


def test_backoff_is_kept_and_its_durations_change() -> None:
    driver = SchedulerDriver(backoff="")
    driver.add("web", cpu="1")
    sent = driver.last(to_do.Bind)
    driver.handle(happened.BindFailed(sent.effect, sent.uid, 403, "forbidden"))
    assert driver.scheduler.queue.backoff.next_over() == 2 * SECOND
    longer = profiles_text("default-scheduler", backoff="7")
    driver.handle(ConfigurationChanged(longer, "script", has_profiles=True, has_sessions=False))
    assert driver.scheduler.queue.backoff.next_over() == 8 * SECOND


def test_nominated_pods_keep_their_nomination() -> None:
    scheduler = started(text())
    low = [
        pod(f"low{i}", cpu=one.status.allocatable["cpu"], on=one.name)
        for i, one in enumerate(NODES)
    ]
    scheduler.handle([happened.PodAdded(one) for one in low], SECOND)
    effects = scheduler.handle([happened.PodAdded(pod("vip", cpu="8", priority=9))], 2 * SECOND)
    (victim,) = [one for one in effects if isinstance(one, to_do.Evict)]
    scheduler.handle([change(text("MostAllocated"))], 3 * SECOND)
    assert scheduler.queue.nominator.node_of("default/vip") == "n2"
    events = [happened.EvictDone(victim.effect, victim.uid), happened.PodDeleted(low[1])]
    assert bound(scheduler.handle(events, 9 * SECOND)) == {"vip": "n2"}
    scheduler.validate()


def test_unchanged_profiles_and_plugins_with_state_go_on() -> None:
    one, two = {"schedulerName": "one"}, {"schedulerName": "two"}
    scheduler = started(configuration(one, two))
    before = dict(scheduler._context.frameworks)
    changed = two | {"percentageOfNodesToScore": 50}
    scheduler.handle([change(configuration(one, changed))], SECOND)
    after = scheduler._context.frameworks
    assert after["one"] is before["one"]
    assert after["two"] is not before["two"]
    assert after["two"].profile.percentage_of_nodes_to_score == 50
    assert after["two"].shared is before["two"].shared
    # It may have reserved volumes for pods whose binding is in progress.
    assert plugins(after, "VolumeBinding") == plugins(before, "VolumeBinding")
    assert plugins(after, "NodeAffinity") != plugins(before, "NodeAffinity")


def plugins(frameworks: Any, name: str) -> int:
    return id(frameworks["two"].members[name].plugin)


def test_plugins_that_read_what_is_not_watched_need_a_restart() -> None:
    few = {
        "plugins": {
            "multiPoint": {
                "disabled": [{"name": "*"}],
                "enabled": [{"name": "PrioritySort"}, {"name": FIT}, {"name": "DefaultBinder"}],
            }
        }
    }
    scheduler = started(configuration(few))
    (report,) = scheduler.handle([change(configuration({}))], SECOND)
    assert isinstance(report, to_do.Report)
    assert report.is_fault
    assert "plugins that read" in report.text
    assert "PersistentVolume" in report.text
    assert len(bound(scheduler.handle(arrivals("p", 1), SECOND))) == 1


def test_profiles_without_any_are_refused() -> None:
    scheduler = started(configuration({}))
    sessions = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n"
    (report,) = scheduler.handle([change(sessions)], SECOND)
    assert isinstance(report, to_do.Report)
    assert report.is_fault
    assert "profiles: Invalid value: none" in report.text


def test_options_of_the_caller_outlast_a_change() -> None:
    options = SchedulerOptions(queue=QueueOptions(initial_backoff_s=3))
    scheduler = deciders_of([ConfigText(text(), FILE)]).scheduler(options=options)
    scheduler.handle([change(text(podInitialBackoffSeconds=7, podMaxBackoffSeconds=20))], 0)
    assert (scheduler.queue.options.initial_s, scheduler.queue.options.max_s) == (3, 20)
