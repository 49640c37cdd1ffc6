"""Between Permit and Bind: plugins that work, write and wait. Volumes are in the scenarios."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stowplan.framework import Code, ObjectChange, Status
from stowplan.framework.object_store import ObjectStore
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.objects.workload import Namespace
from stowplan.scheduler.binding.binding_cycle import BindingStage
from stowplan.scheduler.binding.prebind import POLL_PACE_NS, AppliedChange
from stowplan.testing import node
from tests.scheduler.bridge import Bridge


def namespace(name: str, version: str = "", **labels: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name, resource_version=version, labels=labels))


def notes(bridge: Bridge) -> list[str]:
    return [effect.note for effect in bridge.effects if isinstance(effect, to_do.RecordEvent)]


# Waiting for the cluster to change.


def test_a_plugin_waits_until_an_object_is_there() -> None:
    bridge = Bridge(plugins="Lock")
    bridge.add("web", labels={"lock": "30"})
    assert bridge.stage("web") is BindingStage.PREBIND
    assert bridge.last(to_do.PatchStatus).nominated_node == "n1", "its node is announced"
    assert bridge.last(to_do.Wake).at == bridge.now + 30 * 10**9
    bridge.told(happened.ObjectAdded(namespace("other")))
    assert bridge.stage("web") is BindingStage.PREBIND
    bridge.told(happened.ObjectAdded(namespace("lock-ready")))
    assert bridge.last(to_do.Bind).name == "web"


def test_a_plugin_that_has_nothing_left_to_wait_for_is_done_at_once() -> None:
    bridge = Bridge(plugins="Lock")
    bridge.told(happened.ObjectAdded(namespace("lock-ready")))
    bridge.add("web", labels={"lock": "30"})
    assert bridge.last(to_do.Bind).name == "web"


def test_its_time_is_up() -> None:
    bridge = Bridge(plugins="Lock,Purser")
    bridge.add("web", labels={"lock": "30"})
    bridge.after(29.9)
    assert bridge.stage("web") is BindingStage.PREBIND
    bridge.after(0.1)
    assert bridge.stage("web") is None
    assert notes(bridge) == ['running PreBind plugin "Lock": the gate is shut']
    purser = bridge.scheduler._context.frameworks["default-scheduler"].members["Purser"].plugin
    assert purser.reserved == set()


def test_a_plugin_that_breaks_down_while_it_waits_fails_its_pod() -> None:
    bridge = Bridge(plugins="Lock")
    bridge.add("web", labels={"lock": "30"})
    bridge.told(happened.ObjectAdded(namespace("lock-broken")))
    assert "pre_bind_progress of pod 'default/web'" in notes(bridge)[0]
    # The others go on.
    bridge.add("api")
    assert bridge.last(to_do.Bind).name == "api"


def test_nodes_and_objects_are_news_and_pods_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = Bridge(plugins="Lock")
    bridge.add("web", labels={"lock": "30"})
    asked: list[str] = []

    def progress(pod: Pod, *about: object) -> Status:
        asked.append(pod.name)
        return Status(Code.WAIT)

    framework = bridge.scheduler._context.frameworks["default-scheduler"]
    monkeypatch.setitem(framework.members["Lock"].calls, "pre_bind_progress", progress)
    bridge.add("api", node_selector={"no": "where"})
    assert asked == []
    bridge.told(happened.NodeUpdated(node("n1", cpu="4", labels={"a": "b"})))
    bridge.told(happened.NodeAdded(node("n2")))
    bridge.told(happened.NodeDeleted(node("n2")))
    bridge.told(happened.ObjectAdded(namespace("other")))
    assert asked == ["web"] * 4


def test_where_very_many_wait_they_are_asked_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stowplan.scheduler.binding.prebind.UNPACED_WAITS_MAX", 2)
    bridge = Bridge(plugins="Lock")
    for name in ("a", "b", "c", "d"):
        bridge.add(name, labels={"lock": "30"})
    bridge.told(happened.ObjectAdded(namespace("first")))
    effects = bridge.told(happened.ObjectAdded(namespace("lock-ready")))
    assert [effect.at for effect in effects if isinstance(effect, to_do.Wake)] == [2 * POLL_PACE_NS]
    assert bridge.stage("a") is BindingStage.PREBIND
    bridge.now = 2 * POLL_PACE_NS
    names = [effect.name for effect in bridge.told() if isinstance(effect, to_do.Bind)]
    assert names == ["a", "b", "c", "d"]


def test_a_wait_and_a_work_go_on_side_by_side_and_end_together() -> None:
    bridge = Bridge(plugins="Crane,Lock,Winch")
    web = bridge.add("web", labels={"crane": "yes", "lock": "30", "winch": "yes"})
    works = [effect for effect in bridge.effects if isinstance(effect, to_do.Prepare)]
    assert [plugin_io.plugin for plugin_io in works] == ["Crane", "Winch"]
    bridge.told(happened.ObjectAdded(namespace("lock-ready")))
    bridge.told(happened.PrepareDone(works[0].effect, web.uid))
    assert bridge.stage("web") is BindingStage.PREBIND
    bridge.told(happened.PrepareDone(works[1].effect, web.uid))
    assert bridge.stage("web") is BindingStage.BINDING


def test_what_fails_first_ends_the_rest() -> None:
    bridge = Bridge(plugins="Crane,Lock")
    bridge.add("web", labels={"crane": "yes", "lock": "30"})
    bridge.after(30)
    assert bridge.last(to_do.Cancel).prepare == bridge.last(to_do.Prepare).effect
    web = bridge.add("api", labels={"crane": "yes", "lock": "30"})
    bridge.told(happened.PrepareFailed(bridge.last(to_do.Prepare).effect, web.uid, "no power"))
    assert len(bridge.scheduler.bindings.prebind) == 0
    bridge.told(happened.ObjectAdded(namespace("lock-ready")))
    assert bridge.stage("api") is None


def test_a_pod_that_waits_is_stopped_for_a_greater_one() -> None:
    bridge = Bridge(plugins="Lock", cpu="1")
    bridge.add("web", cpu="1", labels={"lock": "30"})
    bridge.add("vip", cpu="1", priority=5)
    assert notes(bridge)[0] == 'running PreBind plugin "Lock": preempted by DefaultPreemption'
    assert bridge.last(to_do.Bind).name == "vip"


def test_who_leads_no_more_waits_for_nothing() -> None:
    bridge = Bridge(plugins="Lock,Painter")
    bridge.told(happened.ObjectAdded(namespace("ship")))
    web = bridge.add("web", labels={"lock": "30"})
    bridge.told(happened.ObjectAdded(namespace("lock-ready")))
    write = bridge.last(to_do.Write)
    bridge.told(happened.LeaderLost())
    assert bridge.stage("web") is None
    assert bridge.told(happened.WriteDone(write.effect, web.uid, "2")) == []


def test_a_plugin_that_is_asked_between_attempts_may_have_pods_tried_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bridge = Bridge(plugins="Lock")
    bridge.add("web", labels={"lock": "30"})
    api = bridge.add("api", node_selector={"no": "where"})
    framework = bridge.scheduler._context.frameworks["default-scheduler"]

    def progress(*about: object) -> Status:
        framework.shared.to_activate[api.uid] = api
        return Status(Code.WAIT)

    monkeypatch.setitem(framework.members["Lock"].calls, "pre_bind_progress", progress)
    bridge.told(happened.ObjectAdded(namespace("other")))
    entry = bridge.scheduler.queue.get(api.key)
    assert entry is not None
    assert entry.attempts == 2


# Changing objects.


def test_changes_are_written_and_the_watch_shows_them() -> None:
    bridge = Bridge(plugins="Painter")
    ship = namespace("ship", "7", app="x")
    bridge.told(happened.ObjectAdded(ship))
    web = bridge.add("web")
    write = bridge.last(to_do.Write)
    assert write.patch == {"metadata": {"labels": {"web": "here"}}}
    assert write.value == namespace("ship", "7", app="x", web="here")
    bridge.told(happened.WriteDone(write.effect, web.uid, "9"))
    assert bridge.stage("web") is BindingStage.PREBIND
    # Somebody's change that was made before ours.
    bridge.told(happened.ObjectUpdated(namespace("ship", "8", app="y")))
    assert bridge.stage("web") is BindingStage.PREBIND
    bridge.told(happened.ObjectUpdated(namespace("ship", "10", app="z")))
    assert bridge.stage("web") is BindingStage.BINDING


@pytest.mark.parametrize(
    ("code", "reason", "told"),
    [(409, "it has changed", "it has changed"), (500, "", "the API answered 500"), (0, "x", "x")],
)
def test_a_change_that_is_not_taken_fails_the_attempt(code: int, reason: str, told: str) -> None:
    bridge = Bridge(plugins="Painter")
    bridge.told(happened.ObjectAdded(namespace("ship")))
    web = bridge.add("web")
    write = bridge.last(to_do.Write)
    bridge.told(happened.WriteFailed(write.effect, web.uid, code, reason))
    assert notes(bridge) == [f'running PreBind plugin "Painter": {told}']
    assert bridge.last(to_do.PatchStatus).reason == "SchedulerError"
    # What comes twice is history.
    assert bridge.told(happened.WriteFailed(write.effect, web.uid, code, reason)) == []


SHIP = namespace("ship", "7")


@pytest.mark.parametrize(
    ("version", "shown", "wanted"),
    [
        ("9", SHIP, False),
        ("9", namespace("ship", "8"), False),
        ("9", namespace("ship", "9"), True),
        ("9", namespace("ship", "10"), True),
        ("7", SHIP, True),
        ("9", None, True),
        # Nobody said which version it has got.
        ("", SHIP, False),
        ("", namespace("ship", "8"), True),
        ("b", namespace("ship", "a"), True),
    ],
)
def test_when_the_watch_has_shown_a_change(
    version: str, shown: Namespace | None, wanted: bool
) -> None:
    world = ObjectStore([] if shown is None else [shown])
    change = ObjectChange(replace(SHIP, metadata=replace(SHIP.metadata, labels={"a": "b"})), {})
    assert AppliedChange(change, SHIP, version).is_observed(world) is wanted
    # Whatever somebody assumes.
    world.assume(change.value)
    assert AppliedChange(change, SHIP, version).is_observed(world) is wanted
