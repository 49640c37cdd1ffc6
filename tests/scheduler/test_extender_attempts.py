"""Attempts that wait for extenders: what ends them, and their results."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.columns.invariants import InvariantBroken
from stowplan.cycle.engine.kernel_loading import EngineMode
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.messages.extender_api import ExtenderArgs, ExtenderVerb
from stowplan.queue.pod_record import PodState
from stowplan.scheduler import SchedulerOptions
from stowplan.testing import node, pod
from tests.scheduler.scheduler_driver import SchedulerDriver, bound, leaving

NAMES = "fit:filter:names"


def driver_of(extenders: str = NAMES, nodes: int = 1, **settings: str) -> SchedulerDriver:
    driver = SchedulerDriver(extenders=extenders, **settings)
    for i in range(2, nodes + 1):
        driver.handle(happened.NodeAdded(node(f"n{i}", cpu="4")))
    return driver


def call_of(
    driver: SchedulerDriver, name: str, verb: ExtenderVerb | None = None
) -> to_do.CallExtender:
    """The latest call about a pod."""
    found = [
        effect
        for effect in driver.effects
        if isinstance(effect, to_do.CallExtender)
        and effect.uid == f"default/{name}"
        and verb in (None, effect.question.verb)
    ]
    assert found, f"no call about {name}"
    return found[-1]


def extender_answered(call: to_do.CallExtender, tree: Any, code: int = 200) -> Event:
    return happened.ExtenderReplied(call.effect, call.uid, code, json.dumps(tree).encode())


def answer(
    driver: SchedulerDriver, name: str, tree: Any, verb: ExtenderVerb | None = None
) -> list[Effect]:
    """Effects of the response to the latest call about a pod."""
    return driver.handle(extender_answered(call_of(driver, name, verb), tree))


def kinds(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


# While an attempt waits.


def test_a_waiting_attempt_blocks_other_attempts() -> None:
    driver = driver_of()
    driver.add("web")
    driver.add("next")
    assert len(driver.scheduler.extender_attempts) == 1
    assert len(driver.scheduler.queue) == 1
    assert kinds(answer(driver, "web", {"NodeNames": ["n1"]})) == ["Bind", "CallExtender"]


def test_it_emits_wake_for_the_timeout_of_a_call() -> None:
    driver = driver_of(f"{NAMES}:timeout=7s")
    driver.add("web")
    assert driver.last(to_do.Wake).at == 7_100_000_000
    late = driver.after(7.1)
    assert kinds(late)[:3] == ["Cancel", "RecordEvent", "PatchStatus"]
    assert driver.last(to_do.Cancel).prepare == call_of(driver, "web").effect
    # Responses are ignored now.
    assert answer(driver, "web", {"NodeNames": ["n1"]}) == []


def test_a_pod_updated_during_the_attempt_is_requeued_in_its_new_version() -> None:
    driver = driver_of()
    web = driver.add("web")
    labelled = replace(web, metadata=replace(web.metadata, labels={"a": "b"}))
    assert driver.handle(happened.PodUpdated(labelled)) == []
    answer(driver, "web", {"Error": "no"})
    entry = driver.scheduler.queue.get("default/web")
    assert entry is not None
    assert entry.pod == labelled


def test_a_node_that_begins_to_fit_during_the_attempt_requeues_the_pod() -> None:
    """It was refused by another plugin than refuses the other node in the end."""
    driver = SchedulerDriver(extenders=NAMES, cpu="1")
    driver.handle(happened.NodeAdded(node("n2", cpu="2")))
    driver.add("web", cpu="2")
    call = call_of(driver, "web")
    assert isinstance(call.question.body, ExtenderArgs)
    assert call.question.body.node_names == ("n2",)
    driver.handle(
        happened.NodeUpdated(node("n1", cpu="2")),
        happened.NodeUpdated(node("n2", cpu="2", taints=("dedicated=x:NoSchedule",))),
    )
    answer(driver, "web", {"NodeNames": ["n2"]})
    assert "untolerated taint" in driver.last(to_do.RecordEvent).note
    driver.after(2)
    answer(driver, "web", {"NodeNames": ["n1"]})
    assert driver.last(to_do.Bind).node == "n1"


@pytest.mark.parametrize("hints", ["yes", "no"])
def test_an_event_during_the_attempt_requeues_the_pod(hints: str) -> None:
    driver = driver_of(hints=hints)
    web = driver.add("web")
    driver.handle(happened.NodeAdded(node("n2")))
    driver.handle(
        happened.PodUpdated(replace(web, metadata=replace(web.metadata, labels={"a": "b"})))
    )
    answer(driver, "web", {"NodeNames": []})
    driver.after(30)
    again = call_of(driver, "web").question.body
    assert again.node_names == ("n1", "n2")  # type: ignore[union-attr]


@pytest.mark.parametrize("hints", ["yes", "no"])
@pytest.mark.parametrize("end", ["gone", "leaving", "bound", "anew"])
def test_a_deleted_pod_ends_its_wait(end: str, hints: str) -> None:
    driver = driver_of(hints=hints)
    web = driver.add("web")
    anew = replace(web, metadata=replace(web.metadata, uid="web-2"))
    events = {
        "gone": happened.PodDeleted(web),
        "leaving": happened.PodUpdated(leaving(web)),
        "bound": happened.PodUpdated(bound(web)),
        "anew": happened.PodAdded(anew),
    }
    effects = driver.handle(events[end])
    assert "Cancel" in kinds(effects)
    assert ("CallExtender" in kinds(effects)) == (end == "anew")
    assert answer(driver, "web", {"NodeNames": ["n1"]}) == []


def test_no_binding_follows_from_an_ended_term() -> None:
    driver = driver_of()
    driver.add("web")
    assert "Cancel" in kinds(driver.handle(happened.LeaderLost()))
    assert answer(driver, "web", {"NodeNames": ["n1"]}) == []
    driver.handle(happened.LeaderElected(2))
    driver.after(2)
    assert call_of(driver, "web").term == 2


def test_victims_that_wait_at_permit_are_rejected_at_once() -> None:
    driver = driver_of("fit:preempt:names", plugins="PermitByLabel", cpu="1")
    driver.add("low", cpu="1", labels={"permit": "60"})
    driver.add("vip", cpu="1", priority=9)
    victims = {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "default/low"}]}}}
    answer(driver, "vip", victims)
    assert driver.stage("low") is None


# Results of responses.


def test_an_unknown_node_in_a_response_is_a_failure() -> None:
    driver = driver_of()
    driver.add("web")
    answer(driver, "web", {"NodeNames": ["ghost"]})
    text = 'extender "http://fit" claims a filtered node "ghost" which is not found in the input '
    assert driver.last(to_do.PatchStatus).message == text + "node list"


def test_a_failure_without_a_reason_is_a_failure() -> None:
    driver = driver_of()
    driver.add("web")
    call = call_of(driver, "web")
    driver.handle(happened.ExtenderFailed(call.effect, call.uid, ""))
    assert driver.last(to_do.PatchStatus).reason == "SchedulerError"


def test_an_extender_that_fails_for_the_nominated_node_is_called_for_all_nodes() -> None:
    driver = driver_of(nodes=2)
    driver.handle(happened.PodAdded(pod("vip", nominated="n2")))
    assert call_of(driver, "vip").question.body.node_names == ("n2",)  # type: ignore[union-attr]
    (asked,) = driver.handle(happened.ExtenderFailed(call_of(driver, "vip").effect, "x", "down"))
    assert isinstance(asked, to_do.CallExtender)
    assert call_of(driver, "vip").question.body.node_names == ("n1", "n2")  # type: ignore[union-attr]


def test_a_nominated_node_that_is_kept_is_chosen() -> None:
    driver = driver_of("fit:filter:prioritize:weight=1:names", nodes=2)
    driver.handle(happened.PodAdded(pod("vip", nominated="n2")))
    assert "Bind" in kinds(answer(driver, "vip", {"NodeNames": ["n2"]}))
    assert driver.last(to_do.Bind).node == "n2"


def test_among_equals_a_scored_node_is_chosen() -> None:
    driver = driver_of("nice:prioritize:weight=1:names", nodes=3)
    driver.add("web")
    answer(driver, "web", [{"Host": "n3", "Score": 0}])
    assert driver.last(to_do.Bind).node == "n3"


def test_a_victim_that_no_longer_exists_is_not_evicted() -> None:
    driver = driver_of("fit:preempt:names", cpu="2")
    lows = [pod(f"low{i}", cpu="1", priority=i, on="n1") for i in (1, 2)]
    driver.handle(*(happened.PodAdded(low) for low in lows))
    driver.add("vip", cpu="2", priority=9)
    driver.handle(happened.PodDeleted(lows[0]))
    uids = [{"UID": low.uid} for low in lows]
    answer(driver, "vip", {"NodeNameToMetaVictims": {"n1": {"Pods": uids}}})
    assert driver.last(to_do.Evict).name == "low2"
    assert driver.last(to_do.PatchStatus, "vip").nominated_node == "n1"


def test_a_contract_error_fails_an_attempt_that_waited_for_extenders() -> None:
    driver = driver_of(plugins="ContractBreaker")
    web = driver.add("web")
    # The label is read when the filters run again.
    broken = {"breaks": "filter"}
    entry = next(iter(driver.scheduler.extender_attempts))[1].entry
    web.metadata.labels.update(broken)
    assert entry.pod.labels == broken
    answer(driver, "web", {"NodeNames": ["n1"]})
    assert "boom" in driver.last(to_do.PatchStatus).message


# Beside kernel placement.


@pytest.mark.parametrize("extenders", ["gpu:filter:names:manages=a.b/c", "gpu:bind:manages=a.b/c"])
def test_pods_with_interested_extenders_are_not_placed_in_runs(extenders: str) -> None:
    driver = driver_of(extenders)
    driver.scheduler.pod_lane.decider._mode = EngineMode.COMPILED  # type: ignore[attr-defined]
    pods = [pod(f"p{i}", cpu="100m", resources={"a.b/c": "0"} if i == 2 else {}) for i in range(5)]
    effects = driver.handle(*(happened.PodAdded(one) for one in pods))
    named = [getattr(effect, "name", effect.effect) for effect in effects]
    (call,) = (effect for effect in effects if isinstance(effect, to_do.CallExtender))
    assert call.uid == "default/p2"
    assert "p2" not in named
    if call.question.verb is ExtenderVerb.FILTER:
        driver.handle(extender_answered(call, {"NodeNames": ["n1"]}))
    binds = {effect.name for effect in driver.effects if isinstance(effect, to_do.Bind)}
    is_bound_by_us = call.question.verb is ExtenderVerb.FILTER
    assert binds == {f"p{i}" for i in range(5) if i != 2 or is_bound_by_us}
    assert driver.stage("p2") is PodState.BINDING


# Options and invariants.


def test_extender_waits_max_must_be_positive() -> None:
    (problem,) = SchedulerOptions(extender_waits_max=0).problems("options")
    assert str(problem) == "options.extender_waits_max: Invalid value: 0: expected 1 or more"


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda m: m.extender_attempts._waiting.clear(), "awaiting extender: not in extender"),
        (lambda m: m._context.pods.clear(), "record of an unknown pod"),
        (lambda m: m.queue.in_flight.done("default/web"), "in flight is False"),
        (lambda m: next(iter(m.extender_attempts))[1].calls.clear(), "no pending calls"),
        (lambda m: m.queue.add(pod("web"), 0), "unknown record in the active queue"),
    ],
)
def test_broken_invariants_are_found(damage: Any, named: str) -> None:
    driver = driver_of()
    driver.add("web")
    damage(driver.scheduler)
    with pytest.raises(InvariantBroken, match=named):
        driver.scheduler.validate()
