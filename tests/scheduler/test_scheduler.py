"""The scheduler as its driver sees it."""

from __future__ import annotations

import pytest

from stowplan.columns.invariants import InvariantBroken
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.encoding.duration import SECOND
from stowplan.queue import SubQueue
from stowplan.queue.pod_record import PodState
from stowplan.scheduler import Scheduler
from stowplan.testing import node, pod
from tests.scheduler.scheduler_driver import SchedulerDriver, bound


def test_time_does_not_run_backwards() -> None:
    driver = SchedulerDriver()
    driver.after(3)
    with pytest.raises(ValueError, match=r"invalid now: 1: expected at least 3000000000"):
        driver.scheduler.handle([], 1)


def test_a_call_decides_at_most_heads_max_and_emits_wake() -> None:
    driver = SchedulerDriver()
    pods = [happened.PodAdded(pod(f"p{i}")) for i in range(3)]
    for effects in (driver.handle(*pods, heads_max=1), driver.handle(heads_max=1)):
        assert [type(effect) for effect in effects] == [to_do.Bind, to_do.Wake]
        assert driver.last(to_do.Wake).at == driver.now
    assert [type(effect) for effect in driver.handle(heads_max=1)] == [to_do.Bind]


def test_a_call_that_decides_the_last_pod_emits_no_wake() -> None:
    driver = SchedulerDriver()
    pods = [happened.PodAdded(pod(f"p{i}")) for i in range(2)]
    assert [type(effect) for effect in driver.handle(*pods, heads_max=2)] == [to_do.Bind] * 2


def test_effects_are_numbered_and_never_twice() -> None:
    driver = SchedulerDriver(plugins="PreBindIO,PermitByLabel")
    driver.add("web", labels={"prebind-io": "yes"})
    driver.add("api", labels={"permit": "30"})
    driver.add("big", cpu="100")
    driver.after(100)
    numbers = [effect.effect for effect in driver.effects]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {effect.term for effect in driver.effects} == {1}


def test_wake_is_for_the_earliest_deadline_and_not_repeated() -> None:
    driver = SchedulerDriver(plugins="PermitByLabel")
    driver.add("web", labels={"permit": "60"})
    assert driver.last(to_do.Wake).at == 60 * SECOND
    driver.add("api", labels={"permit": "20"})
    assert driver.last(to_do.Wake).at == 20 * SECOND
    assert driver.handle(happened.Tick()) == []
    driver.after(20)
    # The refused pod is flushed after five minutes, checked every 30 seconds; no wake-up is needed
    # before it can be due.
    assert driver.last(to_do.Wake).at == 60 * SECOND


def test_backoffs_are_flushed_once_a_second_however_short_they_are() -> None:
    driver = SchedulerDriver(hints="no", backoff="0.2", cpu="1")
    driver.add("web", cpu="2")
    driver.handle(happened.NodeAdded(node("n2", cpu="2")))
    assert driver.scheduler.queue.place_of("default/web") is SubQueue.BACKOFF
    assert driver.last(to_do.Wake).at == SECOND
    driver.after(1)
    assert driver.stage("web") is PodState.BINDING


def test_no_wake_is_emitted_when_nothing_is_due() -> None:
    driver = SchedulerDriver()
    web = driver.add("web")
    driver.handle(happened.PodUpdated(bound(web)))
    assert not any(isinstance(effect, to_do.Wake) for effect in driver.effects)


# Leadership.


def test_without_leadership_nothing_is_decided() -> None:
    driver = SchedulerDriver(leads="no")
    driver.add("web")
    assert driver.effects == []
    effects = driver.handle(happened.LeaderElected(5))
    assert [(type(e), e.term) for e in effects] == [(to_do.Bind, 5)]


def test_a_new_term_ends_the_previous_one_without_leader_lost() -> None:
    driver = SchedulerDriver()
    web = driver.add("web")
    effects = driver.handle(happened.LeaderElected(2))
    assert [type(effect) for effect in effects] == [to_do.ReadPod, to_do.Wake]
    driver.handle(happened.PodRead(effects[0].effect, web.uid, web))
    driver.after(2)
    assert (driver.last(to_do.Bind).term, driver.stage("web")) == (2, PodState.BINDING)


def test_a_term_that_is_named_twice_changes_nothing() -> None:
    driver = SchedulerDriver()
    driver.handle(happened.LeaderElected(2))
    driver.add("web")
    assert driver.handle(happened.LeaderElected(2)) == []
    assert driver.handle(happened.LeaderElected(1)) == []
    assert driver.stage("web") is PodState.BINDING


def test_after_stepping_down_nothing_is_written() -> None:
    driver = SchedulerDriver(plugins="PermitByLabel,PreBindIO,ActivateOthers", cpu="3")
    waits = driver.add("waits", cpu="1", labels={"permit": "60"})
    driver.add("works", cpu="1", labels={"prebind-io": "yes"})
    binds = driver.add("binds", cpu="1")
    driver.add("unschedulable", cpu="100")
    effects = driver.handle(happened.LeaderLost())
    assert [type(effect) for effect in effects] == [to_do.Cancel, to_do.ReadPod, to_do.Wake]
    assert driver.stage(waits.name) is None
    # Earlier effects may have been performed: then the pod is bound, and nothing else follows.
    assert driver.handle(happened.PodUpdated(bound(binds))) == []
    assert driver.handle(happened.LeaderLost()) == []
    driver.handle(happened.LeaderElected(2))
    driver.after(2)
    assert driver.stage("waits") is PodState.WAITING_ON_PERMIT
    assert driver.stage("works") is PodState.PREBINDING


def test_a_preemption_of_another_term_does_not_keep_its_pod_gated() -> None:
    driver = SchedulerDriver(cpu="1")
    driver.handle(happened.PodAdded(pod("low", cpu="1", priority=1, on="n1")))
    driver.add("vip", cpu="1", priority=9)
    first = driver.last(to_do.Evict)
    driver.handle(happened.LeaderLost())
    driver.handle(happened.LeaderElected(2))
    assert driver.last(to_do.Evict).term == 2
    # Nor are outcomes of that term's evictions reported.
    assert driver.handle(happened.EvictDone(first.effect, first.uid)) == []


# Invariants.


def test_a_pod_in_two_places_is_reported_with_its_event_log() -> None:
    driver = SchedulerDriver()
    web = driver.add("web")
    driver.scheduler.queue.add(web, 0)
    with pytest.raises(InvariantBroken) as broken:
        driver.scheduler.validate()
    text = str(broken.value)
    assert text.startswith("unknown record in the active queue: pod default/web")
    assert "0 PodAdded(" in text
    assert "0 Bind(effect=1, term=1, uid='default/web'" in text


def set_state(scheduler: Scheduler, state: PodState) -> None:
    """Set the state of the unschedulable pod, behind the queue's back."""
    scheduler.pods.records["default/unschedulable"].state = state


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (
            lambda m: m.queue.delete(pod("unschedulable")),
            "unschedulable: not in the unschedulable pods",
        ),
        (
            lambda m: m._context.pods.pop("default/unschedulable"),
            "unschedulable: record of an unknown pod",
        ),
        (lambda m: m._context.pods.pop("default/binds"), "binding: record of an unknown pod"),
        (lambda m: m.cache.forget("default/binds"), "pod is not assumed"),
        (lambda m: m.bindings._records.pop("default/binds"), "not in a binding cycle"),
        (
            lambda m: m._context.shared.waiting.drop("default/waits"),
            "at Permit is the opposite",
        ),
        (lambda m: m.pods.records.pop("default/unschedulable"), "pending pod without a record"),
        (lambda m: set_state(m, PodState.IN_FLIGHT), "in flight: between calls"),
        (lambda m: set_state(m, PodState.ACTIVE), "active: not in the active queue"),
        (lambda m: set_state(m, PodState.SKIPPED), "skipped, but not being deleted"),
        (lambda m: m.queue.in_flight.done("default/waits"), "in flight is False"),
        (lambda m: m.queue.in_flight.start("default/x"), "in flight is True"),
        (lambda m: m._context.shared.preempting.add("default/x"), "preempting pod is not pending"),
        (lambda m: m.cache.nodes.remove_pod("default/bound"), "bound pod is on no node"),
        (lambda m: m.cache.nodes.add_pod(pod("x"), "n1"), "unknown pod in the cache"),
    ],
)
def test_broken_invariants_are_found(damage, named) -> None:  # type: ignore[no-untyped-def]
    driver = SchedulerDriver(plugins="PermitByLabel")
    driver.add("unschedulable", cpu="100")
    driver.add("binds")
    driver.add("waits", labels={"permit": "60"})
    driver.handle(happened.PodAdded(pod("bound", on="n1")))
    damage(driver.scheduler)
    with pytest.raises(InvariantBroken, match=named.replace("[", r"\[").replace("]", r"\]")):
        driver.scheduler.validate()


# Without hints.


def test_the_scheduler_works_without_hints() -> None:
    driver = SchedulerDriver(plugins="PermitByLabel", hints="no", cpu="1")
    driver.add("web", cpu="2")
    driver.add("waits", labels={"permit": "60"})
    driver.handle(happened.NodeAdded(node("n2", cpu="4")))
    driver.after(2)
    assert driver.stage("web") is PodState.BINDING
    driver.after(60)
    assert driver.stage("waits") is None
