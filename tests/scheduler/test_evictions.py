"""Preemption under way: the pod that preempts is gated until the last of its victims is going."""

from __future__ import annotations

import pytest

from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.pod import Pod
from stowplan.queue import SubQueue
from stowplan.scheduler.binding.binding_cycle import BindingStage
from stowplan.testing import pod
from tests.scheduler.bridge import Bridge, leaving

VIP = "default/vip"


class Preempting(Bridge):
    """A full node of two victims, and a pod that wants all of it."""

    def __init__(self) -> None:
        super().__init__(cpu="2")
        self.low = self.bound_pod("low", 1)
        self.mid = self.bound_pod("mid", 2)
        self.vip = self.add("vip", cpu="2", priority=100)

    def bound_pod(self, name: str, priority: int) -> Pod:
        made = pod(name, cpu="1", priority=priority, on="n1")
        self.told(happened.PodAdded(made))
        return made

    def asked(self) -> list[str]:
        return [effect.name for effect in self.effects if isinstance(effect, to_do.Evict)]

    def done(self, name: str) -> None:
        effect = self.last(to_do.Evict, name)
        self.told(happened.EvictDone(effect.effect, effect.uid))

    def failed(self, name: str, code: int) -> None:
        effect = self.last(to_do.Evict, name)
        self.told(happened.EvictFailed(effect.effect, effect.uid, code))

    def is_gated(self) -> bool:
        return self.vip.uid in self.scheduler._context.shared.preempting

    def told_of(self) -> list[str]:
        return [
            effect.name
            for effect in self.effects
            if isinstance(effect, to_do.RecordEvent) and effect.reason == "Preempted"
        ]


def test_the_last_victim_is_asked_when_the_others_are_done() -> None:
    bridge = Preempting()
    assert (bridge.asked(), bridge.is_gated()) == (["mid"], True)
    bridge.done("mid")
    assert (bridge.asked(), bridge.is_gated()) == (["mid", "low"], True)
    bridge.done("low")
    assert (bridge.is_gated(), bridge.told_of()) == (False, ["mid", "low"])


def test_the_gate_opens_when_the_last_victim_begins_to_end() -> None:
    bridge = Preempting()
    bridge.done("mid")
    bridge.told(happened.PodUpdated(leaving(bridge.low)))
    assert not bridge.is_gated()
    # The answer comes later, and the user is told all the same.
    bridge.done("low")
    assert bridge.told_of() == ["mid", "low"]


def test_a_victim_that_goes_while_others_are_asked_opens_no_gate() -> None:
    bridge = Preempting()
    bridge.told(happened.PodUpdated(leaving(bridge.low)))
    bridge.told(happened.PodDeleted(bridge.mid))
    assert bridge.is_gated()


def test_a_last_victim_that_went_by_itself_is_not_asked() -> None:
    bridge = Preempting()
    bridge.told(happened.PodDeleted(bridge.low))
    bridge.told(happened.PodDeleted(bridge.mid))
    assert bridge.stage("vip") is None
    bridge.done("mid")
    # Its going woke nobody, as the pod was gated then; so the pod is tried now.
    assert (bridge.asked(), bridge.stage("vip")) == (["mid"], BindingStage.BINDING)


def test_a_refused_eviction_has_the_pod_tried_again_at_once() -> None:
    bridge = Preempting()
    bridge.failed("mid", 500)
    # It preempts anew, as nothing has changed.
    assert bridge.asked() == ["mid", "mid"]
    assert bridge.is_gated()


def test_other_victims_are_awaited_before_the_pod_is_tried_again() -> None:
    bridge = Bridge(cpu="3")
    victims = [pod(f"v{i}", cpu="1", priority=i, on="n1") for i in range(3)]
    bridge.told(*map(happened.PodAdded, victims))
    bridge.add("vip", cpu="3", priority=100)
    first, second = (bridge.last(to_do.Evict, name) for name in ("v2", "v1"))
    assert bridge.told(happened.EvictFailed(first.effect, first.uid, 500)) == []
    effects = bridge.told(happened.EvictDone(second.effect, second.uid))
    assert "Preempted" in {getattr(effect, "reason", "") for effect in effects}
    # Tried again: all three are still there.
    assert sum(isinstance(effect, to_do.Evict) for effect in effects) == 2


def test_a_victim_that_the_api_does_not_know_counts_as_evicted() -> None:
    bridge = Preempting()
    bridge.failed("mid", 404)
    assert (bridge.asked(), bridge.told_of()) == (["mid", "low"], [])
    bridge.failed("low", 404)
    assert not bridge.is_gated()


@pytest.mark.parametrize("event", [happened.PodDeleted, happened.PodUpdated])
def test_no_more_victims_for_a_pod_that_is_gone_or_bound(event: type) -> None:
    bridge = Preempting()
    bridge.told(event(pod("vip", cpu="2", priority=100, on="n9")))
    assert not bridge.is_gated()
    bridge.done("mid")
    assert (bridge.asked(), bridge.told_of()) == (["mid"], ["mid"])


def test_a_second_preemption_is_not_ended_by_the_first() -> None:
    bridge = Preempting()
    bridge.done("mid")
    bridge.told(happened.PodDeleted(bridge.mid))
    bridge.told(happened.PodUpdated(leaving(bridge.low)))
    other = bridge.bound_pod("other", 3)
    bridge.told(happened.PodDeleted(bridge.low))
    # Tried as there is room again, but not enough: it preempts anew.
    assert (bridge.asked(), bridge.is_gated()) == (["mid", "low", "other"], True)
    bridge.done("low")
    assert bridge.is_gated()
    bridge.told(happened.PodDeleted(other))
    assert not bridge.is_gated()


def test_victims_that_are_going_already_are_not_asked() -> None:
    bridge = Bridge(cpu="1")
    low = pod("low", cpu="1", priority=1, on="n1")
    bridge.told(happened.PodAdded(leaving(low)))
    bridge.add("vip", cpu="1", priority=100)
    assert not any(isinstance(effect, to_do.Evict) for effect in bridge.effects)
    assert bridge.last(to_do.PatchStatus).nominated_node == "n1"
    assert bridge.scheduler.queue.place_of(VIP) is SubQueue.UNSCHEDULABLE


def test_a_victim_that_may_be_bound_is_evicted_through_the_api() -> None:
    bridge = Bridge(cpu="1")
    low = bridge.add("low", cpu="1", priority=1)
    bridge.told(happened.BindFailed(bridge.last(to_do.Bind).effect, low.uid, 0))
    assert bridge.stage("low") is BindingStage.BIND_UNKNOWN
    bridge.add("vip", cpu="1", priority=100)
    assert bridge.last(to_do.Evict).uid == low.uid
    bridge.told(happened.PodUpdated(leaving(low)))
    # The API binds no pod that is being deleted, so its room is free.
    assert bridge.stage("vip") is BindingStage.BINDING


def test_a_preemptor_is_woken_when_its_victim_has_lost_its_room_before_the_answer() -> None:
    """The victim's own binding falls through, and it is pending when its deletion is taken: of its
    going nobody else will hear."""
    bridge = Bridge(cpu="1")
    low = bridge.add("low", cpu="1")
    bind = bridge.last(to_do.Bind, "low")
    bridge.told(happened.BindFailed(bind.effect, low.uid, 504))
    read = bridge.last(to_do.ReadPod, "low")
    bridge.add("vip", cpu="1", priority=9)
    evict = bridge.last(to_do.Evict, "low")
    bridge.told(happened.PodRead(read.effect, low.uid, low))
    bridge.told(happened.EvictDone(evict.effect, low.uid))
    assert bridge.last(to_do.Bind).name == "vip"
    bridge.told(happened.PodDeleted(low))
