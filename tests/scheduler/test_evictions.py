"""Preemption: the preemptor is gated until the last of its victims is terminating."""

from __future__ import annotations

import pytest

from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.pod import Pod
from stowplan.queue import SubQueue
from stowplan.queue.pod_record import PodState
from stowplan.testing import pod
from tests.scheduler.scheduler_driver import SchedulerDriver, leaving

VIP = "default/vip"


class Preempting(SchedulerDriver):
    """A node filled by two victims, and a pod that needs all of it."""

    def __init__(self) -> None:
        super().__init__(cpu="2")
        self.low = self.bound_pod("low", 1)
        self.mid = self.bound_pod("mid", 2)
        self.vip = self.add("vip", cpu="2", priority=100)

    def bound_pod(self, name: str, priority: int) -> Pod:
        made = pod(name, cpu="1", priority=priority, on="n1")
        self.handle(happened.PodAdded(made))
        return made

    def evicting(self) -> list[str]:
        return [effect.name for effect in self.effects if isinstance(effect, to_do.Evict)]

    def done(self, name: str) -> None:
        effect = self.last(to_do.Evict, name)
        self.handle(happened.EvictDone(effect.effect, effect.uid))

    def failed(self, name: str, code: int) -> None:
        effect = self.last(to_do.Evict, name)
        self.handle(happened.EvictFailed(effect.effect, effect.uid, code))

    def is_gated(self) -> bool:
        return self.vip.uid in self.scheduler._context.shared.preempting

    def reported(self) -> list[str]:
        return [
            effect.name
            for effect in self.effects
            if isinstance(effect, to_do.RecordEvent) and effect.reason == "Preempted"
        ]


def test_the_last_victim_is_evicted_after_the_others() -> None:
    driver = Preempting()
    assert (driver.evicting(), driver.is_gated()) == (["mid"], True)
    driver.done("mid")
    assert (driver.evicting(), driver.is_gated()) == (["mid", "low"], True)
    driver.done("low")
    assert (driver.is_gated(), driver.reported()) == (False, ["mid", "low"])


def test_the_preemptor_is_ungated_when_the_last_victim_terminates() -> None:
    driver = Preempting()
    driver.done("mid")
    driver.handle(happened.PodUpdated(leaving(driver.low)))
    assert not driver.is_gated()
    # The outcome comes later, and the event is recorded all the same.
    driver.done("low")
    assert driver.reported() == ["mid", "low"]


def test_a_victim_deleted_before_the_others_does_not_ungate_the_preemptor() -> None:
    driver = Preempting()
    driver.handle(happened.PodUpdated(leaving(driver.low)))
    driver.handle(happened.PodDeleted(driver.mid))
    assert driver.is_gated()


def test_a_last_victim_that_ended_by_itself_is_not_evicted() -> None:
    driver = Preempting()
    driver.handle(happened.PodDeleted(driver.low))
    driver.handle(happened.PodDeleted(driver.mid))
    assert driver.stage("vip") is None
    driver.done("mid")
    # The victim's deletion woke nobody, since the preemptor was gated then; so it is tried now.
    assert (driver.evicting(), driver.stage("vip")) == (["mid"], PodState.BINDING)


def test_a_refused_eviction_retries_the_preemptor_at_once() -> None:
    driver = Preempting()
    driver.failed("mid", 500)
    # It preempts again, as nothing has changed.
    assert driver.evicting() == ["mid", "mid"]
    assert driver.is_gated()


def test_the_preemptor_waits_for_all_its_victims() -> None:
    driver = SchedulerDriver(cpu="3")
    victims = [pod(f"v{i}", cpu="1", priority=i, on="n1") for i in range(3)]
    driver.handle(*map(happened.PodAdded, victims))
    driver.add("vip", cpu="3", priority=100)
    first, second = (driver.last(to_do.Evict, name) for name in ("v2", "v1"))
    assert driver.handle(happened.EvictFailed(first.effect, first.uid, 500)) == []
    effects = driver.handle(happened.EvictDone(second.effect, second.uid))
    assert "Preempted" in {getattr(effect, "reason", "") for effect in effects}
    # Tried again: all three victims remain.
    assert sum(isinstance(effect, to_do.Evict) for effect in effects) == 2


def test_a_victim_unknown_to_the_api_server_counts_as_evicted() -> None:
    driver = Preempting()
    driver.failed("mid", 404)
    assert (driver.evicting(), driver.reported()) == (["mid", "low"], [])
    driver.failed("low", 404)
    assert not driver.is_gated()


@pytest.mark.parametrize("event", [happened.PodDeleted, happened.PodUpdated])
def test_no_more_victims_for_a_deleted_or_bound_preemptor(event: type) -> None:
    driver = Preempting()
    driver.handle(event(pod("vip", cpu="2", priority=100, on="n9")))
    assert not driver.is_gated()
    driver.done("mid")
    assert (driver.evicting(), driver.reported()) == (["mid"], ["mid"])


def test_a_second_preemption_is_not_ended_by_the_first() -> None:
    driver = Preempting()
    driver.done("mid")
    driver.handle(happened.PodDeleted(driver.mid))
    driver.handle(happened.PodUpdated(leaving(driver.low)))
    other = driver.bound_pod("other", 3)
    driver.handle(happened.PodDeleted(driver.low))
    # Tried as resources were released, but not enough: it preempts again.
    assert (driver.evicting(), driver.is_gated()) == (["mid", "low", "other"], True)
    driver.done("low")
    assert driver.is_gated()
    driver.handle(happened.PodDeleted(other))
    assert not driver.is_gated()


def test_terminating_victims_are_not_evicted() -> None:
    driver = SchedulerDriver(cpu="1")
    low = pod("low", cpu="1", priority=1, on="n1")
    driver.handle(happened.PodAdded(leaving(low)))
    driver.add("vip", cpu="1", priority=100)
    assert not any(isinstance(effect, to_do.Evict) for effect in driver.effects)
    assert driver.last(to_do.PatchStatus).nominated_node == "n1"
    assert driver.scheduler.queue.place_of(VIP) is SubQueue.UNSCHEDULABLE


def test_a_victim_that_may_be_bound_is_evicted_through_the_api() -> None:
    driver = SchedulerDriver(cpu="1")
    low = driver.add("low", cpu="1", priority=1)
    driver.handle(happened.BindFailed(driver.last(to_do.Bind).effect, low.uid, 0))
    assert driver.stage("low") is PodState.BIND_UNKNOWN
    driver.add("vip", cpu="1", priority=100)
    assert driver.last(to_do.Evict).uid == low.uid
    driver.handle(happened.PodUpdated(leaving(low)))
    # The API server binds no terminating pod, so its resources are free.
    assert driver.stage("vip") is PodState.BINDING


def test_a_preemptor_is_activated_if_its_victim_lost_its_resources_before_the_outcome() -> None:
    """The victim's own binding is rolled back, and it is pending when its deletion is handled: that
    deletion is no event for others."""
    driver = SchedulerDriver(cpu="1")
    low = driver.add("low", cpu="1")
    bind = driver.last(to_do.Bind, "low")
    driver.handle(happened.BindFailed(bind.effect, low.uid, 504))
    read = driver.last(to_do.ReadPod, "low")
    driver.add("vip", cpu="1", priority=9)
    evict = driver.last(to_do.Evict, "low")
    driver.handle(happened.PodRead(read.effect, low.uid, low))
    driver.handle(happened.EvictDone(evict.effect, low.uid))
    assert driver.last(to_do.Bind).name == "vip"
    driver.handle(happened.PodDeleted(low))
