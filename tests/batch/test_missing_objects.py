"""A missing queue or PodGroup is reported on pods and group, once, until it exists."""

from __future__ import annotations

from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.testing import pod
from tests.batch.session_driver import SessionDriver, binds, gated, member
from tests.scenarios import group_commands

NO_QUEUE = 'queues "nowhere" not found'


def events(effects: list[Effect]) -> set[tuple[str, str, str]]:
    """(object, reason, note) of the warnings."""
    return {
        (one.name, one.reason, one.note)
        for one in effects
        if isinstance(one, to_do.RecordEvent) and one.type == "Warning"
    }


def conditions(effects: list[Effect]) -> dict[str, tuple[str, str]]:
    """Pod -> reason and message of PodScheduled."""
    return {
        one.name: (one.reason, one.message) for one in effects if isinstance(one, to_do.PatchStatus)
    }


def group_conditions(effects: list[Effect]) -> list[tuple[str, str, str, str]]:
    return [
        (one.name, c.status, c.reason, c.message)
        for one in effects
        if isinstance(one, to_do.PatchGroup)
        for c in one.status.conditions
    ]


def test_a_missing_queue_is_reported_on_pods_and_group() -> None:
    driver = SessionDriver()
    effects = driver.handle(*driver.gang("g", 2, queue="nowhere"))
    assert binds(effects) == {}
    assert conditions(effects) == dict.fromkeys(("g-0", "g-1"), ("Unschedulable", NO_QUEUE))
    assert group_conditions(effects) == [("g", "True", "QueueNotFound", NO_QUEUE)]
    assert events(effects) == {
        ("g", "Unschedulable", NO_QUEUE),
        ("g-0", "FailedScheduling", NO_QUEUE),
        ("g-1", "FailedScheduling", NO_QUEUE),
    }


def test_it_is_reported_once_and_removed_when_the_queue_exists() -> None:
    driver = SessionDriver()
    driver.handle(*driver.gang("g", 2, queue="nowhere"))
    again = driver.handle(happened.ObjectAdded(group_commands.queue("other", "2", {})))
    assert (group_conditions(again), events(again)) == ([], set())
    # The watch has not shown the pods' conditions yet; they are not written twice either.
    assert conditions(again) == {}
    effects = driver.handle(happened.ObjectAdded(group_commands.queue("nowhere", "3", {})))
    assert set(binds(effects)) == {"g-0", "g-1"}
    effects = driver.handle(happened.ObjectAdded(group_commands.queue("another", "4", {})))
    effects += driver.handle(happened.PodAdded(member("late", "g")))
    (condition,) = group_conditions(effects)[-1:] or [("", "False", "", "")]
    assert condition[1] == "False"


def test_a_deleted_queue_is_reported_and_earlier_conditions_return() -> None:
    driver = SessionDriver()
    queue = group_commands.queue("q", "2", {})
    first = driver.handle(happened.ObjectAdded(queue), *driver.gang("g", 3, queue="q"))
    assert group_conditions(first)[0][2] == "NotEnoughResources"
    gone = driver.handle(happened.ObjectDeleted(queue))
    assert group_conditions(gone) == [("g", "True", "QueueNotFound", 'queues "q" not found')]
    back = driver.handle(happened.ObjectAdded(queue))
    assert group_conditions(back)[0][2] == "NotEnoughResources"


def test_a_missing_group_is_reported_on_its_pods() -> None:
    driver = SessionDriver()
    effects = driver.handle(happened.PodAdded(member("a", "lost")))
    text = 'podgroups "lost" not found in namespace "default"'
    assert conditions(effects) == {"a": ("Unschedulable", text)}
    assert events(effects) == {("a", "FailedScheduling", text)}
    effects = driver.handle(happened.ObjectAdded(group_commands.group("lost", "1", {"min": "1"})))
    assert binds(effects) == {"a": "n1"}


def test_a_missing_default_queue_is_reported_on_pods_without_a_group() -> None:
    driver = SessionDriver()
    driver.handle(happened.ObjectDeleted(group_commands.queue("default", "1", {})))
    effects = driver.handle(happened.PodAdded(pod("solo", cpu="1", scheduler="kube-batch")))
    text = 'queues "default" not found; it is the default queue (batch.defaultQueue)'
    assert conditions(effects) == {"solo": ("Unschedulable", text)}


def test_gated_pods_are_not_reported() -> None:
    driver = SessionDriver()
    effects = driver.handle(happened.PodAdded(gated("a", "lost", "quota")))
    assert (conditions(effects), events(effects)) == ({}, set())
