"""Binding cycles: cases that the scripts do not cover."""

from __future__ import annotations

import pytest

from stowplan.framework.clusterevents import ASSIGNED_POD_DELETE
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.queue import SubQueue
from stowplan.queue.pod_record import PodState
from stowplan.testing import pod
from tests.scheduler.scheduler_driver import SchedulerDriver, bound, leaving

LABEL_PLUGINS = (
    "PermitByLabel,PreBindIO,SecondPreBindIO,ReserveByLabel,ActivateOthers,ContractBreaker"
)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422, 429])
def test_a_4xx_is_definite(code: int) -> None:
    assert happened.BindFailed(1, "uid", code).is_definite


@pytest.mark.parametrize("code", [0, 408, 500, 502, 503, 504])
def test_no_answer_and_a_server_error_are_not_definite(code: int) -> None:
    assert not happened.BindFailed(1, "uid", code).is_definite


@pytest.mark.parametrize("code", [404, 409, 422])
def test_a_definite_refusal_rolls_back_and_the_pod_backs_off(code: int) -> None:
    driver = SchedulerDriver(plugins="ReserveByLabel")
    web = driver.add("web")
    purser = (
        driver.scheduler._context.frameworks["default-scheduler"].members["ReserveByLabel"].plugin
    )
    assert purser.reserved == {web.uid}
    assert driver.scheduler.cache.is_assumed(web.uid)
    driver.handle(happened.BindFailed(driver.last(to_do.Bind).effect, web.uid, code, "no"))
    assert purser.reserved == set()
    assert not driver.scheduler.cache.nodes.knows_pod(web.uid)
    assert driver.scheduler.queue.place_of(web.key) is SubQueue.BACKOFF
    assert driver.stage("web") is None


@pytest.mark.parametrize("code", [0, 408, 500, 503])
def test_after_an_ambiguous_failure_the_pod_stays_assumed_until_it_is_read(code: int) -> None:
    driver = SchedulerDriver(plugins="ReserveByLabel")
    web = driver.add("web")
    purser = (
        driver.scheduler._context.frameworks["default-scheduler"].members["ReserveByLabel"].plugin
    )
    driver.handle(happened.BindFailed(driver.last(to_do.Bind).effect, web.uid, code, "no"))
    assert driver.stage("web") is PodState.BIND_UNKNOWN
    assert purser.reserved == {web.uid}
    assert driver.scheduler.cache.is_assumed(web.uid)
    driver.handle(happened.PodRead(driver.last(to_do.ReadPod).effect, web.uid, web))
    assert driver.scheduler.queue.place_of(web.key) is SubQueue.BACKOFF
    assert purser.reserved == set()


# Plugins that break their contract.


@pytest.mark.parametrize(
    ("point", "method"),
    [
        ("filter", "filter"),
        ("reserve", "reserve"),
        ("permit", "permit"),
        ("flight", "pre_bind_pre_flight"),
        ("prebind", "pre_bind"),
        ("bind", "bind"),
    ],
)
def test_a_contract_error_fails_the_attempt_of_its_pod(point: str, method: str) -> None:
    driver = SchedulerDriver(plugins=LABEL_PLUGINS, binders="ContractBreaker,DefaultBinder")
    driver.add("web", labels={"breaks": point})
    event = driver.last(to_do.RecordEvent)
    assert event.reason == "FailedScheduling"
    assert f"plugin 'ContractBreaker': {method} of pod 'default/web'" in event.note
    assert "ValueError: boom" in event.note
    assert driver.last(to_do.PatchStatus).reason == "SchedulerError"
    assert driver.stage("web") is None
    # Other pods are not affected.
    driver.add("api")
    assert driver.last(to_do.Bind).name == "api"


def test_a_contract_error_at_the_end_of_a_wait_fails_the_pod() -> None:
    driver = SchedulerDriver(plugins=LABEL_PLUGINS)
    web = driver.add("web", labels={"permit": "60", "breaks": "prebind"})
    driver.handle(happened.Allowed(web.uid, "PermitByLabel"))
    assert "pre_bind of pod" in driver.last(to_do.RecordEvent).note


def test_a_contract_error_after_plugin_io_fails_the_pod() -> None:
    driver = SchedulerDriver(plugins="PreBindIO,ContractBreaker")
    web = driver.add("web", labels={"prebind-io": "yes", "breaks": "prebind"})
    driver.handle(happened.PrepareDone(driver.last(to_do.Prepare).effect, web.uid))
    assert "pre_bind of pod" in driver.last(to_do.RecordEvent).note


def test_unreserve_is_called_for_all_plugins_even_if_one_fails() -> None:
    driver = SchedulerDriver(plugins="ReserveByLabel,ContractBreaker")
    web = driver.add("web", labels={"breaks": "unreserve"})
    purser = (
        driver.scheduler._context.frameworks["default-scheduler"].members["ReserveByLabel"].plugin
    )
    assert purser.reserved == {web.uid}
    driver.handle(happened.BindFailed(driver.last(to_do.Bind).effect, web.uid, 409))
    assert purser.reserved == set()
    notes = [e.reason for e in driver.effects if isinstance(e, to_do.RecordEvent)]
    assert notes == ["FailedUnreserve", "FailedScheduling"]


def test_a_failure_after_the_binding_changes_nothing() -> None:
    driver = SchedulerDriver(plugins="ContractBreaker")
    web = driver.add("web", labels={"breaks": "postbind"})
    driver.handle(happened.BindDone(driver.last(to_do.Bind).effect, web.uid))
    notes = [e.reason for e in driver.effects if isinstance(e, to_do.RecordEvent)]
    assert notes == ["Scheduled", "FailedPostBind"]
    assert driver.stage("web") is PodState.ASSUMED


# Plugin I/O.


def test_the_driver_gets_all_arguments_of_plugin_io() -> None:
    driver = SchedulerDriver(plugins="PreBindIO")
    web = driver.add("web", labels={"prebind-io": "yes"})
    prepare = driver.last(to_do.Prepare)
    plugin_io = driver.scheduler.plugin_io(prepare.effect)
    assert plugin_io is not None
    assert (plugin_io.name, plugin_io.point, plugin_io.pod, plugin_io.node_name) == (
        "PreBindIO",
        "preBind",
        web,
        "n1",
    )
    assert (plugin_io.timeout_s, type(plugin_io.plugin).__name__) == (60, "PreBindIO")
    driver.handle(happened.PrepareDone(prepare.effect, web.uid))
    assert driver.scheduler.plugin_io(prepare.effect) is None


def test_io_after_the_binding_outlives_the_binding_cycle() -> None:
    driver = SchedulerDriver(plugins="ActivateOthers")
    web = driver.add("web")
    lines = driver.lines(happened.PodUpdated(bound(web)))
    assert lines[:2] == [
        "event web Normal Scheduled: Successfully assigned default/web to n1",
        "prepare web on n1: ActivateOthers at postBind for 30s",
    ]
    prepare = driver.last(to_do.Prepare)
    assert driver.scheduler.plugin_io(prepare.effect) is not None
    assert driver.lines(happened.PrepareFailed(prepare.effect, web.uid, "no lamp")) == []
    assert driver.scheduler.plugin_io(prepare.effect) is None


def test_io_after_the_binding_is_cancelled_at_its_timeout() -> None:
    driver = SchedulerDriver(plugins="ActivateOthers")
    web = driver.add("web")
    driver.handle(happened.PodUpdated(bound(web)))
    effects = driver.after(30)
    assert [type(effect) for effect in effects] == [to_do.Cancel]
    assert driver.last(to_do.Cancel).prepare == driver.last(to_do.Prepare).effect


def test_two_io_timeouts_at_once_are_one_failure() -> None:
    driver = SchedulerDriver(plugins="PreBindIO,SecondPreBindIO")
    driver.add("web", labels={"prebind-io": "yes", "second-prebind-io": "yes"})
    effects = driver.after(60)
    assert [type(effect).__name__ for effect in effects if not isinstance(effect, to_do.Wake)] == [
        "Cancel",
        "Cancel",
        "RecordEvent",
        "PatchStatus",
    ]


# Pods to activate.


def test_reserve_may_activate_a_pod() -> None:
    driver = SchedulerDriver(plugins="ActivateOthers", cpu="1")
    driver.add("held", cpu="2")
    attempts = driver.scheduler.queue.get("default/held")
    assert attempts is not None
    assert attempts.attempts == 1
    driver.add("web", labels={"activates": "held"})
    assert attempts.attempts == 2


def test_a_refusal_at_permit_retries_no_pod() -> None:
    driver = SchedulerDriver(plugins="PermitByLabel,ActivateOthers", cpu="1")
    driver.add("held", cpu="2")
    driver.add("web", labels={"activates": "held", "permit": "no"})
    held = driver.scheduler.queue.get("default/held")
    assert held is not None
    assert held.attempts == 1


def test_postbind_may_activate_a_pod() -> None:
    driver = SchedulerDriver(plugins="ActivateOthers", cpu="1")
    driver.add("held", cpu="2")
    web = driver.add("web", labels={"activates": "held"})
    held = driver.scheduler.queue.get("default/held")
    assert held is not None
    before = held.attempts
    driver.handle(happened.BindDone(driver.last(to_do.Bind).effect, web.uid))
    assert held.attempts == before + 1


# Released resources.


def test_released_resources_are_an_event_only_where_a_bound_pods_deletion_would_be() -> None:
    """Hints read the node name, so the pod that releases resources is shown as placed."""
    driver = SchedulerDriver(cpu="1")
    heard = []
    move = driver.scheduler.queue.move

    def listen(event, old, new, now, only=None):  # type: ignore[no-untyped-def]
        heard.append((event, old.node_name))
        move(event, old, new, now, only)

    driver.scheduler.queue.move = listen  # type: ignore[method-assign]
    web = driver.add("web")
    driver.handle(happened.BindFailed(driver.last(to_do.Bind).effect, web.uid, 409))
    assert heard == [(ASSIGNED_POD_DELETE, "n1")]
    driver.after(2)
    driver.handle(happened.PodDeleted(web))
    assert heard == [(ASSIGNED_POD_DELETE, "n1")] * 2


def test_a_refusal_at_reserve_is_no_event() -> None:
    driver = SchedulerDriver(plugins="ReserveByLabel", cpu="1")
    driver.add("held", cpu="2")
    driver.add("web", cpu="1", labels={"reserve": "no"})
    held = driver.scheduler.queue.get("default/held")
    assert held is not None
    assert held.attempts == 1


def test_a_pod_bound_elsewhere_by_another_client_releases_its_resources() -> None:
    driver = SchedulerDriver(cpu="1")
    web = driver.add("web", cpu="1")
    driver.add("next", cpu="1")
    assert driver.stage("next") is None
    driver.handle(happened.PodUpdated(bound(web, "n9")))
    assert driver.stage("next") is PodState.BINDING


# Reads.


def test_a_read_for_an_earlier_unknown_outcome_is_ignored() -> None:
    driver = SchedulerDriver()
    web = driver.add("web")
    driver.handle(happened.BindFailed(driver.last(to_do.Bind).effect, web.uid, 0))
    first = driver.last(to_do.ReadPod).effect
    driver.after(10)
    driver.handle(happened.PodRead(driver.last(to_do.ReadPod).effect, web.uid, web))
    driver.after(2)
    driver.handle(happened.BindFailed(driver.last(to_do.Bind).effect, web.uid, 0))
    driver.handle(happened.PodRead(first, web.uid, web))
    assert driver.stage("web") is PodState.BIND_UNKNOWN


def test_a_read_is_repeated_until_it_is_answered() -> None:
    driver = SchedulerDriver()
    web = driver.add("web")
    driver.handle(happened.BindFailed(driver.last(to_do.Bind).effect, web.uid, 0))
    for _ in range(3):
        assert [type(effect) for effect in driver.after(10)] == [to_do.ReadPod, to_do.Wake]


def test_any_read_since_the_outcome_became_unknown_settles_it() -> None:
    driver = SchedulerDriver()
    web = driver.add("web")
    driver.handle(happened.BindFailed(driver.last(to_do.Bind).effect, web.uid, 0))
    first = driver.last(to_do.ReadPod).effect
    driver.after(10)
    driver.handle(happened.PodRead(first, web.uid, bound(web)))
    assert driver.stage("web") is PodState.ASSUMED


@pytest.mark.parametrize("found", ["nothing", "another", "elsewhere"])
def test_a_read_that_finds_the_pod_elsewhere_rolls_back_the_binding(found: str) -> None:
    driver = SchedulerDriver()
    web = driver.add("web")
    driver.handle(happened.BindFailed(driver.last(to_do.Bind).effect, web.uid, 504, "gave up"))
    answer = None
    if found == "another":
        answer = pod("web", uid="another", on="n1")
    elif found == "elsewhere":
        answer = bound(web, "n2")
    driver.handle(happened.PodRead(driver.last(to_do.ReadPod).effect, web.uid, answer))
    assert driver.stage("web") is None
    assert 'running Bind plugin "DefaultBinder": gave up' in driver.last(to_do.RecordEvent).note


def test_outcomes_of_ended_effects_are_ignored() -> None:
    driver = SchedulerDriver()
    web = driver.add("web")
    effect = driver.last(to_do.Bind).effect
    for event in (
        happened.BindDone(effect + 100, web.uid),
        happened.BindFailed(effect + 100, web.uid, 409),
        happened.PodRead(effect, web.uid, None),
        happened.PrepareDone(effect, web.uid),
        happened.PrepareFailed(effect, web.uid),
        happened.EvictDone(effect, web.uid),
        happened.EvictFailed(effect, web.uid, 500),
        happened.PatchFailed(effect, web.uid, 500),
        happened.Allowed(web.uid, "PermitByLabel"),
        happened.Rejected(web.uid, "PermitByLabel"),
        happened.BindDone(effect, "default/other"),
    ):
        assert driver.handle(event) == []
    assert driver.stage("web") is PodState.BINDING


# Pods that are being deleted.


def test_a_bound_pod_observed_terminating_late_keeps_its_resources() -> None:
    driver = SchedulerDriver(cpu="1")
    web = driver.add("web", cpu="1")
    driver.handle(happened.BindDone(driver.last(to_do.Bind).effect, web.uid))
    driver.handle(happened.PodUpdated(leaving(web)))
    assert driver.stage("web") is PodState.ASSUMED
    assert driver.scheduler.cache.is_assumed(web.uid)


def test_a_missing_reason_is_replaced_by_the_status_code() -> None:
    driver = SchedulerDriver()
    web = driver.add("web")
    driver.handle(happened.BindFailed(driver.last(to_do.Bind).effect, web.uid, 422))
    assert driver.last(to_do.RecordEvent).note.endswith(": the API server returned 422")
