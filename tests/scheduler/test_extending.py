"""Attempts that wait for extenders: what ends them, and what they come to."""

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
from stowplan.messages.extender_api import ExtenderVerb
from stowplan.scheduler import SchedulerOptions
from stowplan.scheduler.binding.binding_cycle import BindingStage
from stowplan.testing import node, pod
from tests.scheduler.bridge import Bridge, bound, leaving

NAMES = "fit:filter:names"


def bridge_of(extenders: str = NAMES, nodes: int = 1, **settings: str) -> Bridge:
    bridge = Bridge(extenders=extenders, **settings)
    for i in range(2, nodes + 1):
        bridge.told(happened.NodeAdded(node(f"n{i}", cpu="4")))
    return bridge


def call_of(bridge: Bridge, name: str, verb: ExtenderVerb | None = None) -> to_do.CallExtender:
    """The latest call about a pod."""
    found = [
        effect
        for effect in bridge.effects
        if isinstance(effect, to_do.CallExtender)
        and effect.uid == f"default/{name}"
        and verb in (None, effect.question.verb)
    ]
    assert found, f"nobody was asked about {name}"
    return found[-1]


def said(call: to_do.CallExtender, tree: Any, code: int = 200) -> Event:
    return happened.ExtenderReplied(call.effect, call.uid, code, json.dumps(tree).encode())


def answer(bridge: Bridge, name: str, tree: Any, verb: ExtenderVerb | None = None) -> list[Effect]:
    """What the machine does when the latest call about a pod is answered."""
    return bridge.told(said(call_of(bridge, name, verb), tree))


def kinds(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


# While it waits.


def test_an_attempt_that_waits_keeps_the_others_waiting() -> None:
    bridge = bridge_of()
    bridge.add("web")
    bridge.add("next")
    assert len(bridge.scheduler.extender_attempts) == 1
    assert len(bridge.scheduler.queue) == 1
    assert kinds(answer(bridge, "web", {"NodeNames": ["n1"]})) == ["Bind", "CallExtender"]


def test_it_asks_to_be_called_when_its_time_is_over() -> None:
    bridge = bridge_of(f"{NAMES}:timeout=7s")
    bridge.add("web")
    assert bridge.last(to_do.Wake).at == 7_100_000_000
    late = bridge.after(7.1)
    assert kinds(late)[:3] == ["Cancel", "RecordEvent", "PatchStatus"]
    assert bridge.last(to_do.Cancel).prepare == call_of(bridge, "web").effect
    # Whoever answers now is not heard.
    assert answer(bridge, "web", {"NodeNames": ["n1"]}) == []


def test_a_pod_that_changes_meanwhile_comes_back_as_it_is_then() -> None:
    bridge = bridge_of()
    web = bridge.add("web")
    labelled = replace(web, metadata=replace(web.metadata, labels={"a": "b"}))
    assert bridge.told(happened.PodUpdated(labelled)) == []
    answer(bridge, "web", {"Error": "no"})
    entry = bridge.scheduler.queue.get("default/web")
    assert entry is not None
    assert entry.pod == labelled


@pytest.mark.parametrize("hints", ["yes", "no"])
def test_a_change_meanwhile_has_it_tried_again(hints: str) -> None:
    bridge = bridge_of(hints=hints)
    web = bridge.add("web")
    bridge.told(happened.NodeAdded(node("n2")))
    bridge.told(
        happened.PodUpdated(replace(web, metadata=replace(web.metadata, labels={"a": "b"})))
    )
    answer(bridge, "web", {"NodeNames": []})
    bridge.after(30)
    again = call_of(bridge, "web").question.body
    assert again.node_names == ("n1", "n2")  # type: ignore[union-attr]


@pytest.mark.parametrize("hints", ["yes", "no"])
@pytest.mark.parametrize("end", ["gone", "leaving", "bound", "anew"])
def test_a_pod_that_goes_is_waited_for_no_more(end: str, hints: str) -> None:
    bridge = bridge_of(hints=hints)
    web = bridge.add("web")
    anew = replace(web, metadata=replace(web.metadata, uid="web-2"))
    told = {
        "gone": happened.PodDeleted(web),
        "leaving": happened.PodUpdated(leaving(web)),
        "bound": happened.PodUpdated(bound(web)),
        "anew": happened.PodAdded(anew),
    }
    effects = bridge.told(told[end])
    assert "Cancel" in kinds(effects)
    assert ("CallExtender" in kinds(effects)) == (end == "anew")
    assert answer(bridge, "web", {"NodeNames": ["n1"]}) == []


def test_no_binding_comes_of_a_term_that_is_over() -> None:
    bridge = bridge_of()
    bridge.add("web")
    assert "Cancel" in kinds(bridge.told(happened.LeaderLost()))
    assert answer(bridge, "web", {"NodeNames": ["n1"]}) == []
    bridge.told(happened.LeaderElected(2))
    bridge.after(2)
    assert call_of(bridge, "web").term == 2


def test_victims_that_wait_at_permit_go_on_at_once() -> None:
    bridge = bridge_of("fit:preempt:names", plugins="Captain", cpu="1")
    bridge.add("low", cpu="1", labels={"captain": "60"})
    bridge.add("vip", cpu="1", priority=9)
    victims = {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "default/low"}]}}}
    answer(bridge, "vip", victims)
    assert bridge.stage("low") is None


# What answers come to.


def test_a_node_that_nobody_asked_about_is_a_failure() -> None:
    bridge = bridge_of()
    bridge.add("web")
    answer(bridge, "web", {"NodeNames": ["ghost"]})
    text = 'extender "http://fit" claims a filtered node "ghost" which is not found in the input '
    assert bridge.last(to_do.PatchStatus).message == text + "node list"


def test_a_failure_without_words_is_one() -> None:
    bridge = bridge_of()
    bridge.add("web")
    call = call_of(bridge, "web")
    bridge.told(happened.ExtenderFailed(call.effect, call.uid, ""))
    assert bridge.last(to_do.PatchStatus).reason == "SchedulerError"


def test_an_extender_that_fails_on_the_nominated_node_is_asked_about_all() -> None:
    bridge = bridge_of(nodes=2)
    bridge.told(happened.PodAdded(pod("vip", nominated="n2")))
    assert call_of(bridge, "vip").question.body.node_names == ("n2",)  # type: ignore[union-attr]
    (asked,) = bridge.told(happened.ExtenderFailed(call_of(bridge, "vip").effect, "x", "down"))
    assert isinstance(asked, to_do.CallExtender)
    assert call_of(bridge, "vip").question.body.node_names == ("n1", "n2")  # type: ignore[union-attr]


def test_a_nominated_node_that_is_kept_is_taken() -> None:
    bridge = bridge_of("fit:filter:prioritize:weight=1:names", nodes=2)
    bridge.told(happened.PodAdded(pod("vip", nominated="n2")))
    assert "Bind" in kinds(answer(bridge, "vip", {"NodeNames": ["n2"]}))
    assert bridge.last(to_do.Bind).node == "n2"


def test_of_equals_one_that_was_scored_is_taken() -> None:
    bridge = bridge_of("nice:prioritize:weight=1:names", nodes=3)
    bridge.add("web")
    answer(bridge, "web", [{"Host": "n3", "Score": 0}])
    assert bridge.last(to_do.Bind).node == "n3"


def test_a_victim_that_has_gone_meanwhile_is_not_asked_for() -> None:
    bridge = bridge_of("fit:preempt:names", cpu="2")
    lows = [pod(f"low{i}", cpu="1", priority=i, on="n1") for i in (1, 2)]
    bridge.told(*(happened.PodAdded(low) for low in lows))
    bridge.add("vip", cpu="2", priority=9)
    bridge.told(happened.PodDeleted(lows[0]))
    uids = [{"UID": low.uid} for low in lows]
    answer(bridge, "vip", {"NodeNameToMetaVictims": {"n1": {"Pods": uids}}})
    assert bridge.last(to_do.Evict).name == "low2"
    assert bridge.last(to_do.PatchStatus, "vip").nominated_node == "n1"


def test_a_plugin_that_breaks_its_contract_fails_an_attempt_that_has_waited() -> None:
    bridge = bridge_of(plugins="Saboteur")
    web = bridge.add("web")
    # The label is read when the filters are walked anew.
    broken = {"saboteur": "filter"}
    entry = next(iter(bridge.scheduler.extender_attempts))[1].entry
    web.metadata.labels.update(broken)
    assert entry.pod.labels == broken
    answer(bridge, "web", {"NodeNames": ["n1"]})
    assert "boom" in bridge.last(to_do.PatchStatus).message


# Beside runs.


@pytest.mark.parametrize("extenders", ["gpu:filter:names:manages=a.b/c", "gpu:bind:manages=a.b/c"])
def test_pods_of_interest_are_not_placed_in_runs(extenders: str) -> None:
    bridge = bridge_of(extenders)
    bridge.scheduler._decider._mode = EngineMode.COMPILED  # type: ignore[attr-defined]
    pods = [pod(f"p{i}", cpu="100m", resources={"a.b/c": "0"} if i == 2 else {}) for i in range(5)]
    effects = bridge.told(*(happened.PodAdded(one) for one in pods))
    named = [getattr(effect, "name", effect.effect) for effect in effects]
    (call,) = (effect for effect in effects if isinstance(effect, to_do.CallExtender))
    assert call.uid == "default/p2"
    assert "p2" not in named
    if call.question.verb is ExtenderVerb.FILTER:
        bridge.told(said(call, {"NodeNames": ["n1"]}))
    binds = {effect.name for effect in bridge.effects if isinstance(effect, to_do.Bind)}
    is_bound_by_us = call.question.verb is ExtenderVerb.FILTER
    assert binds == {f"p{i}" for i in range(5) if i != 2 or is_bound_by_us}
    assert bridge.stage("p2") is BindingStage.BINDING


# Options, and what must hold.


def test_somebody_must_be_allowed_to_wait() -> None:
    (problem,) = SchedulerOptions(extender_waits_max=0).problems("options")
    assert str(problem) == "options.extender_waits_max: Invalid value: 0: expected 1 or more"


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda m: m.extender_attempts._waiting.clear(), "is in \\[\\]"),
        (lambda m: m._context.pods.clear(), "not known is in flight"),
        (lambda m: m.queue.in_flight.done("default/web"), "awaiting extender: not in flight"),
        (lambda m: next(iter(m.extender_attempts))[1].calls.clear(), "nothing is under way"),
        (lambda m: m.queue.add(pod("web"), 0), "is in \\['queue', 'awaiting extender'\\]"),
    ],
)
def test_damage_is_found(damage: Any, named: str) -> None:
    bridge = bridge_of()
    bridge.add("web")
    damage(bridge.scheduler)
    with pytest.raises(InvariantBroken, match=named):
        bridge.scheduler.validate()
