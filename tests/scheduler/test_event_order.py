"""Order within a call: what the watch shows is applied before replies, which may be older."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.messages.watch_events import watch_events_first
from stowplan.objects.pod import Pod
from stowplan.queue.pod_record import PodState
from stowplan.testing import node, pod
from tests.scheduler.scheduler_driver import SchedulerDriver, bound
from tests.scheduler.test_prebind import namespace

Reply = Callable[[SchedulerDriver, Pod], Event]


def permit_allowed(driver: SchedulerDriver, one: Pod) -> Event:
    return happened.Allowed(one.uid, "PermitByLabel")


def prebind_done(driver: SchedulerDriver, one: Pod) -> Event:
    return happened.PrepareDone(driver.last(to_do.Prepare, one.name).effect, one.uid)


def write_done(driver: SchedulerDriver, one: Pod) -> Event:
    return happened.WriteDone(driver.last(to_do.Write).effect, one.uid)


def bind_refused(driver: SchedulerDriver, one: Pod) -> Event:
    return happened.BindFailed(driver.last(to_do.Bind, one.name).effect, one.uid, 409)


def bind_call_failed(driver: SchedulerDriver, one: Pod) -> Event:
    (call,) = [effect for effect in driver.effects if isinstance(effect, to_do.CallExtender)]
    return happened.ExtenderFailed(call.effect, one.uid, "EOF")


@pytest.mark.parametrize("comes_first", [True, False], ids=["reply first", "reply last"])
@pytest.mark.parametrize(
    "end",
    [
        lambda one: happened.PodUpdated(bound(one)),
        lambda one: happened.PodUpdated(bound(one, "n9")),
        happened.PodDeleted,
    ],
    ids=["bound", "bound elsewhere", "deleted"],
)
@pytest.mark.parametrize(
    ("reply", "label", "settings"),
    [
        (permit_allowed, "permit=60", {"plugins": "PermitByLabel"}),
        (prebind_done, "prebind-io=yes", {"plugins": "PreBindIO"}),
        (write_done, "", {"plugins": "PreBindWrite"}),
        (bind_refused, "", {}),
        (bind_call_failed, "", {"extenders": "bind:bind:ignorable"}),
    ],
)
def test_a_reply_about_a_pod_that_is_bound_or_deleted_leads_to_nothing(
    reply: Reply,
    label: str,
    settings: dict[str, str],
    end: Callable[[Pod], Event],
    comes_first: bool,
) -> None:
    driver = SchedulerDriver(**settings)
    driver.handle(happened.ObjectAdded(namespace("shared")))
    name, _, value = label.partition("=")
    web = driver.add("web", labels={name: value} if name else {})
    assert driver.stage("web") is not None
    events = [reply(driver, web), end(web)]
    effects = driver.handle(*events) if comes_first else driver.handle(*reversed(events))
    notes = {effect.reason for effect in effects if isinstance(effect, to_do.RecordEvent)}
    rest = {type(effect) for effect in effects} - {to_do.RecordEvent, to_do.Cancel, to_do.Wake}
    assert (rest, notes <= {"Scheduled"}) == (set(), True)
    assert driver.stage("web") is None


@pytest.mark.parametrize("kind", [happened.PodDeleted, happened.PodUpdated])
def test_no_victim_is_evicted_for_a_preemptor_that_is_bound_or_deleted(kind: type) -> None:
    driver = SchedulerDriver(cpu="2")
    for name, priority in (("low", 1), ("mid", 2)):
        driver.handle(happened.PodAdded(pod(name, cpu="1", priority=priority, on="n1")))
    vip = driver.add("vip", cpu="2", priority=100)
    first = driver.last(to_do.Evict, "mid")
    done = happened.EvictDone(first.effect, first.uid)
    effects = driver.handle(done, kind(bound(vip, "n9")))
    assert [effect for effect in effects if isinstance(effect, to_do.Evict)] == []


def test_a_refused_pod_is_retried_when_the_watch_has_nothing_about_it() -> None:
    driver = SchedulerDriver()
    web = driver.add("web")
    driver.handle(bind_refused(driver, web), happened.NodeAdded(node("n2")))
    assert driver.last(to_do.RecordEvent).reason == "FailedScheduling"
    driver.after(2)
    assert driver.stage("web") is PodState.BINDING


def test_watch_events_and_the_others_keep_their_own_order() -> None:
    watched = [happened.PodAdded(pod("web")), happened.NodeAdded(node("n1"))]
    others: list[Event] = [happened.LeaderLost(), happened.BindDone(1, "web"), happened.Tick()]
    mixed = [others[0], watched[0], others[1], watched[1], others[2]]
    assert watch_events_first(mixed) == [*watched, *others]
    assert watch_events_first(list(reversed(watched))) == list(reversed(watched))
    assert watch_events_first(others) == others
