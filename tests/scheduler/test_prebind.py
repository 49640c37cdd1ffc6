"""PreBind plugins that do I/O, write and wait. Volumes are covered by the scenarios."""

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
from stowplan.queue.pod_record import PodState
from stowplan.scheduler.binding.prebind import POLL_PACE_NS, RESENDS_MAX, AppliedChange
from stowplan.testing import node
from tests.scheduler.scheduler_driver import SchedulerDriver


def namespace(name: str, version: str = "", **labels: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name, resource_version=version, labels=labels))


def notes(driver: SchedulerDriver) -> list[str]:
    return [effect.note for effect in driver.effects if isinstance(effect, to_do.RecordEvent)]


# Waiting for the cluster to change.


def test_a_plugin_waits_until_an_object_exists() -> None:
    driver = SchedulerDriver(plugins="PreBindUntilReady")
    driver.add("web", labels={"prebind-wait": "30"})
    assert driver.stage("web") is PodState.PREBINDING
    assert driver.last(to_do.PatchStatus).nominated_node == "n1", "its node is announced"
    assert driver.last(to_do.Wake).at == driver.now + 30 * 10**9
    driver.handle(happened.ObjectAdded(namespace("other")))
    assert driver.stage("web") is PodState.PREBINDING
    driver.handle(happened.ObjectAdded(namespace("prebind-ready")))
    assert driver.last(to_do.Bind).name == "web"


def test_a_plugin_whose_condition_already_holds_is_done_at_once() -> None:
    driver = SchedulerDriver(plugins="PreBindUntilReady")
    driver.handle(happened.ObjectAdded(namespace("prebind-ready")))
    driver.add("web", labels={"prebind-wait": "30"})
    assert driver.last(to_do.Bind).name == "web"


def test_a_call_times_out() -> None:
    driver = SchedulerDriver(plugins="PreBindUntilReady,ReserveByLabel")
    driver.add("web", labels={"prebind-wait": "30"})
    driver.after(29.9)
    assert driver.stage("web") is PodState.PREBINDING
    driver.after(0.1)
    assert driver.stage("web") is None
    assert notes(driver) == ['running PreBind plugin "PreBindUntilReady": not ready in time']
    purser = (
        driver.scheduler._context.frameworks["default-scheduler"].members["ReserveByLabel"].plugin
    )
    assert purser.reserved == set()


def test_a_contract_error_during_a_wait_fails_the_pod() -> None:
    driver = SchedulerDriver(plugins="PreBindUntilReady")
    driver.add("web", labels={"prebind-wait": "30"})
    driver.handle(happened.ObjectAdded(namespace("prebind-broken")))
    assert "pre_bind_progress of pod 'default/web'" in notes(driver)[0]
    # Other pods are not affected.
    driver.add("api")
    assert driver.last(to_do.Bind).name == "api"


def test_the_static_revision_changes_with_nodes_and_objects_but_not_with_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = SchedulerDriver(plugins="PreBindUntilReady")
    driver.add("web", labels={"prebind-wait": "30"})
    asked: list[str] = []

    def progress(pod: Pod, *about: object) -> Status:
        asked.append(pod.name)
        return Status(Code.WAIT)

    framework = driver.scheduler._context.frameworks["default-scheduler"]
    monkeypatch.setitem(framework.members["PreBindUntilReady"].calls, "pre_bind_progress", progress)
    driver.add("api", node_selector={"no": "where"})
    assert asked == []
    driver.handle(happened.NodeUpdated(node("n1", cpu="4", labels={"a": "b"})))
    driver.handle(happened.NodeAdded(node("n2")))
    driver.handle(happened.NodeDeleted(node("n2")))
    driver.handle(happened.ObjectAdded(namespace("other")))
    assert asked == ["web"] * 4


def test_polls_are_paced_with_very_many_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stowplan.scheduler.binding.prebind.UNPACED_WAITS_MAX", 2)
    driver = SchedulerDriver(plugins="PreBindUntilReady")
    for name in ("a", "b", "c", "d"):
        driver.add(name, labels={"prebind-wait": "30"})
    driver.handle(happened.ObjectAdded(namespace("first")))
    effects = driver.handle(happened.ObjectAdded(namespace("prebind-ready")))
    assert [effect.at for effect in effects if isinstance(effect, to_do.Wake)] == [2 * POLL_PACE_NS]
    assert driver.stage("a") is PodState.PREBINDING
    driver.now = 2 * POLL_PACE_NS
    names = [effect.name for effect in driver.handle() if isinstance(effect, to_do.Bind)]
    assert names == ["a", "b", "c", "d"]


def test_a_wait_and_plugin_io_run_in_parallel_and_end_together() -> None:
    driver = SchedulerDriver(plugins="PreBindIO,PreBindUntilReady,SecondPreBindIO")
    web = driver.add(
        "web", labels={"prebind-io": "yes", "prebind-wait": "30", "second-prebind-io": "yes"}
    )
    works = [effect for effect in driver.effects if isinstance(effect, to_do.Prepare)]
    assert [plugin_io.plugin for plugin_io in works] == ["PreBindIO", "SecondPreBindIO"]
    driver.handle(happened.ObjectAdded(namespace("prebind-ready")))
    driver.handle(happened.PrepareDone(works[0].effect, web.uid))
    assert driver.stage("web") is PodState.PREBINDING
    driver.handle(happened.PrepareDone(works[1].effect, web.uid))
    assert driver.stage("web") is PodState.BINDING


def test_the_first_failure_ends_the_other_waits() -> None:
    driver = SchedulerDriver(plugins="PreBindIO,PreBindUntilReady")
    driver.add("web", labels={"prebind-io": "yes", "prebind-wait": "30"})
    driver.after(30)
    assert driver.last(to_do.Cancel).prepare == driver.last(to_do.Prepare).effect
    web = driver.add("api", labels={"prebind-io": "yes", "prebind-wait": "30"})
    driver.handle(happened.PrepareFailed(driver.last(to_do.Prepare).effect, web.uid, "no power"))
    assert len(driver.scheduler.bindings.prebind) == 0
    driver.handle(happened.ObjectAdded(namespace("prebind-ready")))
    assert driver.stage("api") is None


def test_a_waiting_pod_is_preempted_by_a_pod_of_higher_priority() -> None:
    driver = SchedulerDriver(plugins="PreBindUntilReady", cpu="1")
    driver.add("web", cpu="1", labels={"prebind-wait": "30"})
    driver.add("vip", cpu="1", priority=5)
    assert (
        notes(driver)[0]
        == 'running PreBind plugin "PreBindUntilReady": preempted by DefaultPreemption'
    )
    assert driver.last(to_do.Bind).name == "vip"


def test_losing_leadership_ends_all_waits() -> None:
    driver = SchedulerDriver(plugins="PreBindUntilReady,PreBindWrite")
    driver.handle(happened.ObjectAdded(namespace("shared")))
    web = driver.add("web", labels={"prebind-wait": "30"})
    driver.handle(happened.ObjectAdded(namespace("prebind-ready")))
    write = driver.last(to_do.Write)
    driver.handle(happened.LeaderLost())
    assert driver.stage("web") is None
    assert driver.handle(happened.WriteDone(write.effect, web.uid, "2")) == []


def test_a_plugin_called_between_attempts_may_activate_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = SchedulerDriver(plugins="PreBindUntilReady")
    driver.add("web", labels={"prebind-wait": "30"})
    api = driver.add("api", node_selector={"no": "where"})
    framework = driver.scheduler._context.frameworks["default-scheduler"]

    def progress(*about: object) -> Status:
        framework.shared.to_activate[api.uid] = api
        return Status(Code.WAIT)

    monkeypatch.setitem(framework.members["PreBindUntilReady"].calls, "pre_bind_progress", progress)
    driver.handle(happened.ObjectAdded(namespace("other")))
    entry = driver.scheduler.queue.get(api.key)
    assert entry is not None
    assert entry.attempts == 2


# Changing objects.


def test_changes_are_written_and_the_watch_shows_them() -> None:
    driver = SchedulerDriver(plugins="PreBindWrite")
    ship = namespace("shared", "7", app="x")
    driver.handle(happened.ObjectAdded(ship))
    web = driver.add("web")
    write = driver.last(to_do.Write)
    assert write.patch == {"metadata": {"labels": {"web": "here"}}}
    assert write.value == namespace("shared", "7", app="x", web="here")
    driver.handle(happened.WriteDone(write.effect, web.uid, "9"))
    assert driver.stage("web") is PodState.PREBINDING
    # A change by another client, made before ours.
    driver.handle(happened.ObjectUpdated(namespace("shared", "8", app="y")))
    assert driver.stage("web") is PodState.PREBINDING
    driver.handle(happened.ObjectUpdated(namespace("shared", "10", app="z")))
    assert driver.stage("web") is PodState.BINDING


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (409, "it has changed", "it has changed"),
        (422, "", "the API server returned 422"),
    ],
)
def test_a_refused_write_fails_the_attempt(code: int, reason: str, message: str) -> None:
    driver = SchedulerDriver(plugins="PreBindWrite")
    driver.handle(happened.ObjectAdded(namespace("shared")))
    web = driver.add("web")
    write = driver.last(to_do.Write)
    driver.handle(happened.WriteFailed(write.effect, web.uid, code, reason))
    assert notes(driver) == [f'running PreBind plugin "PreBindWrite": {message}']
    assert driver.last(to_do.PatchStatus).reason == "SchedulerError"
    # Repeated outcomes are ignored.
    assert driver.handle(happened.WriteFailed(write.effect, web.uid, code, reason)) == []


def unanswered(code: int) -> tuple[SchedulerDriver, Pod]:
    """A pod whose write may have happened or not."""
    driver = SchedulerDriver(plugins="PreBindWrite")
    driver.handle(happened.ObjectAdded(namespace("shared", "7")))
    web = driver.add("web")
    write = driver.last(to_do.Write)
    driver.handle(happened.WriteFailed(write.effect, web.uid, code, "no answer"))
    assert driver.stage("web") is PodState.PREBINDING, "what it takes stays taken"
    assert notes(driver) == []
    return driver, web


@pytest.mark.parametrize("code", [0, 408, 500, 503])
def test_a_write_that_may_have_happened_is_sent_again(code: int) -> None:
    driver, web = unanswered(code)
    first = driver.last(to_do.Write)
    driver.after(1)
    again = driver.last(to_do.Write)
    assert again.effect > first.effect
    assert again.value == first.value, "of the same version: only one of them succeeds"
    driver.handle(happened.WriteDone(again.effect, web.uid, "9"))
    driver.handle(happened.ObjectUpdated(namespace("shared", "9", web="here")))
    assert driver.stage("web") is PodState.BINDING


def test_after_a_conflict_the_watch_shows_what_happened() -> None:
    driver, web = unanswered(0)
    driver.after(1)
    again = driver.last(to_do.Write)
    driver.handle(happened.WriteFailed(again.effect, web.uid, 409, "it has changed"))
    assert driver.stage("web") is PodState.PREBINDING
    driver.handle(happened.ObjectUpdated(namespace("shared", "8", web="here")))
    driver.after(1)
    last = driver.last(to_do.Write)
    driver.handle(happened.WriteFailed(last.effect, web.uid, 409, "it has changed"))
    assert notes(driver) == ['running PreBind plugin "PreBindWrite": it has changed']


def test_a_server_that_never_answers_ends_the_attempt() -> None:
    driver, web = unanswered(0)
    for _ in range(RESENDS_MAX):
        driver.after(1)
        write = driver.last(to_do.Write)
        driver.handle(happened.WriteFailed(write.effect, web.uid, 0, "no answer"))
    assert notes(driver) == ['running PreBind plugin "PreBindWrite": no answer']


SHARED = namespace("shared", "7")


@pytest.mark.parametrize(
    ("version", "observed", "wanted"),
    [
        ("9", SHARED, False),
        ("9", namespace("shared", "8"), False),
        ("9", namespace("shared", "9"), True),
        ("9", namespace("shared", "10"), True),
        ("7", SHARED, True),
        ("9", None, True),
        # The new version is unknown.
        ("", SHARED, False),
        ("", namespace("shared", "8"), True),
        ("b", namespace("shared", "a"), True),
    ],
)
def test_a_change_is_observed_by_its_version(
    version: str, observed: Namespace | None, wanted: bool
) -> None:
    store = ObjectStore([] if observed is None else [observed])
    change = ObjectChange(replace(SHARED, metadata=replace(SHARED.metadata, labels={"a": "b"})), {})
    assert AppliedChange(change, SHARED, version).is_observed(store) is wanted
    # Whatever is assumed.
    store.assume(change.value)
    assert AppliedChange(change, SHARED, version).is_observed(store) is wanted
