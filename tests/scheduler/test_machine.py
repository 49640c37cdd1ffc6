"""The machine as its driver sees it."""

from __future__ import annotations

import pytest

from stowplan.columns.invariants import InvariantBroken
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.encoding.duration import SECOND
from stowplan.queue import SubQueue
from stowplan.scheduler.binding.binding_cycle import BindingStage
from stowplan.testing import node, pod
from tests.scheduler.bridge import Bridge, bound


def test_time_does_not_run_backwards() -> None:
    bridge = Bridge()
    bridge.after(3)
    with pytest.raises(ValueError, match=r"got the time 1, wanted at least 3000000000"):
        bridge.scheduler.handle([], 1)


def test_a_call_decides_so_many_pods_and_asks_to_be_called_again() -> None:
    bridge = Bridge()
    pods = [happened.PodAdded(pod(f"p{i}")) for i in range(3)]
    for effects in (bridge.told(*pods, heads_max=1), bridge.told(heads_max=1)):
        assert [type(effect) for effect in effects] == [to_do.Bind, to_do.Wake]
        assert bridge.last(to_do.Wake).at == bridge.now
    assert [type(effect) for effect in bridge.told(heads_max=1)] == [to_do.Bind]


def test_a_call_that_decides_just_enough_does_not_ask() -> None:
    bridge = Bridge()
    pods = [happened.PodAdded(pod(f"p{i}")) for i in range(2)]
    assert [type(effect) for effect in bridge.told(*pods, heads_max=2)] == [to_do.Bind] * 2


def test_effects_are_numbered_and_never_twice() -> None:
    bridge = Bridge(plugins="Crane,Captain")
    bridge.add("web", labels={"crane": "yes"})
    bridge.add("api", labels={"captain": "30"})
    bridge.add("big", cpu="100")
    bridge.after(100)
    numbers = [effect.effect for effect in bridge.effects]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {effect.term for effect in bridge.effects} == {1}


def test_the_alarm_is_for_what_is_due_first_and_not_repeated() -> None:
    bridge = Bridge(plugins="Captain")
    bridge.add("web", labels={"captain": "60"})
    assert bridge.last(to_do.Wake).at == 60 * SECOND
    bridge.add("api", labels={"captain": "20"})
    assert bridge.last(to_do.Wake).at == 20 * SECOND
    assert bridge.told(happened.Tick()) == []
    bridge.after(20)
    # The refused pod is flushed after five minutes, which is looked for every 30 seconds; before
    # it can be due nobody need look.
    assert bridge.last(to_do.Wake).at == 60 * SECOND


def test_backoffs_are_looked_for_once_a_second_however_short_they_are() -> None:
    bridge = Bridge(hints="no", backoff="0.2", cpu="1")
    bridge.add("web", cpu="2")
    bridge.told(happened.NodeAdded(node("n2", cpu="2")))
    assert bridge.scheduler.queue.place_of("default/web") is SubQueue.BACKOFF
    assert bridge.last(to_do.Wake).at == SECOND
    bridge.after(1)
    assert bridge.stage("web") is BindingStage.BINDING


def test_nothing_is_asked_for_when_nothing_is_due() -> None:
    bridge = Bridge()
    web = bridge.add("web")
    bridge.told(happened.PodUpdated(bound(web)))
    assert not any(isinstance(effect, to_do.Wake) for effect in bridge.effects)


# Leadership.


def test_who_does_not_lead_follows_and_decides_nothing() -> None:
    bridge = Bridge(leads="no")
    bridge.add("web")
    assert bridge.effects == []
    effects = bridge.told(happened.LeaderElected(5))
    assert [(type(e), e.term) for e in effects] == [(to_do.Bind, 5)]


def test_a_new_term_ends_the_one_before_even_if_nobody_said_so() -> None:
    bridge = Bridge()
    web = bridge.add("web")
    effects = bridge.told(happened.LeaderElected(2))
    assert [type(effect) for effect in effects] == [to_do.ReadPod, to_do.Wake]
    bridge.told(happened.PodRead(effects[0].effect, web.uid, web))
    bridge.after(2)
    assert (bridge.last(to_do.Bind).term, bridge.stage("web")) == (2, BindingStage.BINDING)


def test_a_term_that_is_named_twice_changes_nothing() -> None:
    bridge = Bridge()
    bridge.told(happened.LeaderElected(2))
    bridge.add("web")
    assert bridge.told(happened.LeaderElected(2)) == []
    assert bridge.told(happened.LeaderElected(1)) == []
    assert bridge.stage("web") is BindingStage.BINDING


def test_who_stepped_down_writes_nothing() -> None:
    bridge = Bridge(plugins="Captain,Crane,Signaller", cpu="3")
    waits = bridge.add("waits", cpu="1", labels={"captain": "60"})
    bridge.add("works", cpu="1", labels={"crane": "yes"})
    binds = bridge.add("binds", cpu="1")
    bridge.add("parked", cpu="100")
    effects = bridge.told(happened.LeaderLost())
    assert [type(effect) for effect in effects] == [to_do.Cancel, to_do.ReadPod, to_do.Wake]
    assert bridge.stage(waits.name) is None
    # What was asked before may have been carried out: then it is bound, and that is all.
    assert bridge.told(happened.PodUpdated(bound(binds))) == []
    assert bridge.told(happened.LeaderLost()) == []
    bridge.told(happened.LeaderElected(2))
    bridge.after(2)
    assert bridge.stage("waits") is BindingStage.WAITING
    assert bridge.stage("works") is BindingStage.PREBIND


def test_a_preemption_of_another_term_does_not_keep_its_pod_gated() -> None:
    bridge = Bridge(cpu="1")
    bridge.told(happened.PodAdded(pod("low", cpu="1", priority=1, on="n1")))
    bridge.add("vip", cpu="1", priority=9)
    first = bridge.last(to_do.Evict)
    bridge.told(happened.LeaderLost())
    bridge.told(happened.LeaderElected(2))
    assert bridge.last(to_do.Evict).term == 2
    # Nor is anybody told of what became of the victims of that term.
    assert bridge.told(happened.EvictDone(first.effect, first.uid)) == []


# What must hold.


def test_a_pod_in_two_places_is_told_with_its_story() -> None:
    bridge = Bridge()
    web = bridge.add("web")
    bridge.scheduler.queue.add(web, 0)
    with pytest.raises(InvariantBroken) as broken:
        bridge.scheduler.validate()
    text = str(broken.value)
    assert "pod default/web is in ['queue', 'journey'], wanted one of" in text
    assert "0 PodAdded(" in text
    assert "0 Bind(effect=1, term=1, uid='default/web'" in text


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda m: m.queue.delete(pod("parked")), "pod default/parked is in []"),
        (lambda m: m._context.pods.pop("default/parked"), "not known is in the queue"),
        (lambda m: m._context.pods.pop("default/binds"), "not known is in a journey"),
        (lambda m: m.cache.forget("default/binds"), "no room is held"),
        (lambda m: m.bindings._binding_cycles.pop("default/binds"), "is in []"),
        (lambda m: m._context.shared.waiting.drop("default/waits"), "waits at Permit False"),
        (lambda m: m.queue.in_flight.done("default/waits"), "in flight False"),
        (lambda m: m.queue.in_flight.start("default/x"), "not known is in flight"),
        (lambda m: m._context.shared.preempting.add("default/x"), "preempts and is not pending"),
        (lambda m: m.cache.nodes.remove_pod("default/bound"), "pod default/bound is in []"),
        (lambda m: m.cache.nodes.add_pod(pod("x"), "n1"), "not known is in the cache"),
    ],
)
def test_damage_is_found(damage, named) -> None:  # type: ignore[no-untyped-def]
    bridge = Bridge(plugins="Captain")
    bridge.add("parked", cpu="100")
    bridge.add("binds")
    bridge.add("waits", labels={"captain": "60"})
    bridge.told(happened.PodAdded(pod("bound", on="n1")))
    damage(bridge.scheduler)
    with pytest.raises(InvariantBroken, match=named.replace("[", r"\[").replace("]", r"\]")):
        bridge.scheduler.validate()


# Without hints.


def test_the_older_rules_of_the_queue_serve_as_well() -> None:
    bridge = Bridge(plugins="Captain", hints="no", cpu="1")
    bridge.add("web", cpu="2")
    bridge.add("waits", labels={"captain": "60"})
    bridge.told(happened.NodeAdded(node("n2", cpu="4")))
    bridge.after(2)
    assert bridge.stage("web") is BindingStage.BINDING
    bridge.after(60)
    assert bridge.stage("waits") is None
