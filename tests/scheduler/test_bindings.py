"""From the choice of a node to the binding: what the scripts do not show."""

from __future__ import annotations

import pytest

from stowplan.framework.clusterevents import ASSIGNED_POD_DELETE
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.queue import SubQueue
from stowplan.scheduler.binding.binding_cycle import BindingStage
from stowplan.scheduler.binding.binding_cycles import is_definite_failure
from stowplan.testing import pod
from tests.scheduler.bridge import Bridge, bound, leaving

CREW = "Captain,Crane,Winch,Purser,Signaller,Saboteur"


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422, 429])
def test_a_4xx_is_definite(code: int) -> None:
    assert is_definite_failure(code)


@pytest.mark.parametrize("code", [0, 408, 500, 502, 503, 504])
def test_no_answer_and_a_fault_of_the_server_are_not(code: int) -> None:
    assert not is_definite_failure(code)


@pytest.mark.parametrize("code", [404, 409, 422])
def test_a_definite_refusal_undoes_everything_and_the_pod_backs_off(code: int) -> None:
    bridge = Bridge(plugins="Purser")
    web = bridge.add("web")
    purser = bridge.scheduler._context.frameworks["default-scheduler"].members["Purser"].plugin
    assert purser.reserved == {web.uid}
    assert bridge.scheduler.cache.is_assumed(web.uid)
    bridge.told(happened.BindFailed(bridge.last(to_do.Bind).effect, web.uid, code, "no"))
    assert purser.reserved == set()
    assert not bridge.scheduler.cache.nodes.knows_pod(web.uid)
    assert bridge.scheduler.queue.place_of(web.key) is SubQueue.BACKOFF
    assert bridge.stage("web") is None


@pytest.mark.parametrize("code", [0, 408, 500, 503])
def test_after_an_ambiguous_end_all_is_kept_until_a_read_says(code: int) -> None:
    bridge = Bridge(plugins="Purser")
    web = bridge.add("web")
    purser = bridge.scheduler._context.frameworks["default-scheduler"].members["Purser"].plugin
    bridge.told(happened.BindFailed(bridge.last(to_do.Bind).effect, web.uid, code, "no"))
    assert bridge.stage("web") is BindingStage.BIND_UNKNOWN
    assert purser.reserved == {web.uid}
    assert bridge.scheduler.cache.is_assumed(web.uid)
    bridge.told(happened.PodRead(bridge.last(to_do.ReadPod).effect, web.uid, web))
    assert bridge.scheduler.queue.place_of(web.key) is SubQueue.BACKOFF
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
def test_a_plugin_that_breaks_down_fails_the_attempt_of_its_pod(point: str, method: str) -> None:
    bridge = Bridge(plugins=CREW, binders="Saboteur,DefaultBinder")
    bridge.add("web", labels={"saboteur": point})
    event = bridge.last(to_do.RecordEvent)
    assert event.reason == "FailedScheduling"
    assert f"plugin 'Saboteur': {method} of pod 'default/web'" in event.note
    assert "ValueError: boom" in event.note
    assert bridge.last(to_do.PatchStatus).reason == "SchedulerError"
    assert bridge.stage("web") is None
    # The others go on.
    bridge.add("api")
    assert bridge.last(to_do.Bind).name == "api"


def test_a_plugin_that_breaks_down_when_a_wait_is_over_fails_its_pod() -> None:
    bridge = Bridge(plugins=CREW)
    web = bridge.add("web", labels={"captain": "60", "saboteur": "prebind"})
    bridge.told(happened.Allowed(web.uid, "Captain"))
    assert "pre_bind of pod" in bridge.last(to_do.RecordEvent).note


def test_a_plugin_that_breaks_down_after_work_outside_fails_its_pod() -> None:
    bridge = Bridge(plugins="Crane,Saboteur")
    web = bridge.add("web", labels={"crane": "yes", "saboteur": "prebind"})
    bridge.told(happened.PrepareDone(bridge.last(to_do.Prepare).effect, web.uid))
    assert "pre_bind of pod" in bridge.last(to_do.RecordEvent).note


def test_unreserve_is_called_for_all_though_one_breaks_down() -> None:
    bridge = Bridge(plugins="Purser,Saboteur")
    web = bridge.add("web", labels={"saboteur": "unreserve"})
    purser = bridge.scheduler._context.frameworks["default-scheduler"].members["Purser"].plugin
    assert purser.reserved == {web.uid}
    bridge.told(happened.BindFailed(bridge.last(to_do.Bind).effect, web.uid, 409))
    assert purser.reserved == set()
    notes = [e.reason for e in bridge.effects if isinstance(e, to_do.RecordEvent)]
    assert notes == ["FailedUnreserve", "FailedScheduling"]


def test_what_breaks_down_after_the_binding_changes_nothing() -> None:
    bridge = Bridge(plugins="Saboteur")
    web = bridge.add("web", labels={"saboteur": "postbind"})
    bridge.told(happened.BindDone(bridge.last(to_do.Bind).effect, web.uid))
    notes = [e.reason for e in bridge.effects if isinstance(e, to_do.RecordEvent)]
    assert notes == ["Scheduled", "FailedPostBind"]
    assert bridge.stage("web") is BindingStage.BOUND


# Work outside.


def test_the_driver_is_told_all_about_a_work() -> None:
    bridge = Bridge(plugins="Crane")
    web = bridge.add("web", labels={"crane": "yes"})
    prepare = bridge.last(to_do.Prepare)
    plugin_io = bridge.scheduler.plugin_io(prepare.effect)
    assert plugin_io is not None
    assert (plugin_io.name, plugin_io.point, plugin_io.pod, plugin_io.node_name) == (
        "Crane",
        "preBind",
        web,
        "n1",
    )
    assert (plugin_io.timeout_s, type(plugin_io.plugin).__name__) == (60, "Crane")
    bridge.told(happened.PrepareDone(prepare.effect, web.uid))
    assert bridge.scheduler.plugin_io(prepare.effect) is None


def test_work_after_the_binding_outlives_the_journey_and_nothing_comes_of_it() -> None:
    bridge = Bridge(plugins="Signaller")
    web = bridge.add("web")
    lines = bridge.lines(happened.PodUpdated(bound(web)))
    assert lines[:2] == [
        "event web Normal Scheduled: Successfully assigned default/web to n1",
        "prepare web on n1: Signaller at postBind for 30s",
    ]
    prepare = bridge.last(to_do.Prepare)
    assert bridge.scheduler.plugin_io(prepare.effect) is not None
    assert bridge.lines(happened.PrepareFailed(prepare.effect, web.uid, "no lamp")) == []
    assert bridge.scheduler.plugin_io(prepare.effect) is None


def test_work_after_the_binding_is_stopped_when_its_time_is_up() -> None:
    bridge = Bridge(plugins="Signaller")
    web = bridge.add("web")
    bridge.told(happened.PodUpdated(bound(web)))
    effects = bridge.after(30)
    assert [type(effect) for effect in effects] == [to_do.Cancel]
    assert bridge.last(to_do.Cancel).prepare == bridge.last(to_do.Prepare).effect


def test_two_works_whose_time_is_up_at_once_end_in_one_failure() -> None:
    bridge = Bridge(plugins="Crane,Winch")
    bridge.add("web", labels={"crane": "yes", "winch": "yes"})
    effects = bridge.after(60)
    assert [type(effect).__name__ for effect in effects if not isinstance(effect, to_do.Wake)] == [
        "Cancel",
        "Cancel",
        "RecordEvent",
        "PatchStatus",
    ]


# Pods that are to be tried at once.


def test_reserve_may_have_a_pod_tried_at_once() -> None:
    bridge = Bridge(plugins="Signaller", cpu="1")
    bridge.add("held", cpu="2")
    attempts = bridge.scheduler.queue.get("default/held")
    assert attempts is not None
    assert attempts.attempts == 1
    bridge.add("web", labels={"wakes": "held"})
    assert attempts.attempts == 2


def test_who_is_refused_at_permit_wakes_nobody() -> None:
    bridge = Bridge(plugins="Captain,Signaller", cpu="1")
    bridge.add("held", cpu="2")
    bridge.add("web", labels={"wakes": "held", "captain": "no"})
    held = bridge.scheduler.queue.get("default/held")
    assert held is not None
    assert held.attempts == 1


def test_postbind_may_have_a_pod_tried_at_once() -> None:
    bridge = Bridge(plugins="Signaller", cpu="1")
    bridge.add("held", cpu="2")
    web = bridge.add("web", labels={"wakes": "held"})
    held = bridge.scheduler.queue.get("default/held")
    assert held is not None
    before = held.attempts
    bridge.told(happened.BindDone(bridge.last(to_do.Bind).effect, web.uid))
    assert held.attempts == before + 1


# Room.


def test_others_hear_of_room_only_where_a_bound_pod_would_have_left_it() -> None:
    """Hints ask for a node: the pod that gives its room up is shown as placed."""
    bridge = Bridge(cpu="1")
    heard = []
    move = bridge.scheduler.queue.move

    def listen(event, old, new, now, only=None):  # type: ignore[no-untyped-def]
        heard.append((event, old.node_name))
        move(event, old, new, now, only)

    bridge.scheduler.queue.move = listen  # type: ignore[method-assign]
    web = bridge.add("web")
    bridge.told(happened.BindFailed(bridge.last(to_do.Bind).effect, web.uid, 409))
    assert heard == [(ASSIGNED_POD_DELETE, "n1")]
    bridge.after(2)
    bridge.told(happened.PodDeleted(web))
    assert heard == [(ASSIGNED_POD_DELETE, "n1")] * 2


def test_a_refusal_at_reserve_is_heard_by_nobody() -> None:
    bridge = Bridge(plugins="Purser", cpu="1")
    bridge.add("held", cpu="2")
    bridge.add("web", cpu="1", labels={"purser": "no"})
    held = bridge.scheduler.queue.get("default/held")
    assert held is not None
    assert held.attempts == 1


def test_a_pod_bound_elsewhere_by_a_stranger_frees_its_room_for_others() -> None:
    bridge = Bridge(cpu="1")
    web = bridge.add("web", cpu="1")
    bridge.add("next", cpu="1")
    assert bridge.stage("next") is None
    bridge.told(happened.PodUpdated(bound(web, "n9")))
    assert bridge.stage("next") is BindingStage.BINDING


# Reads.


def test_a_read_of_an_earlier_doubt_says_nothing_about_this_one() -> None:
    bridge = Bridge()
    web = bridge.add("web")
    bridge.told(happened.BindFailed(bridge.last(to_do.Bind).effect, web.uid, 0))
    first = bridge.last(to_do.ReadPod).effect
    bridge.after(10)
    bridge.told(happened.PodRead(bridge.last(to_do.ReadPod).effect, web.uid, web))
    bridge.after(2)
    bridge.told(happened.BindFailed(bridge.last(to_do.Bind).effect, web.uid, 0))
    bridge.told(happened.PodRead(first, web.uid, web))
    assert bridge.stage("web") is BindingStage.BIND_UNKNOWN


def test_a_read_is_asked_for_again_and_again_until_it_is_answered() -> None:
    bridge = Bridge()
    web = bridge.add("web")
    bridge.told(happened.BindFailed(bridge.last(to_do.Bind).effect, web.uid, 0))
    for _ in range(3):
        assert [type(effect) for effect in bridge.after(10)] == [to_do.ReadPod, to_do.Wake]


def test_any_read_since_the_doubt_began_settles_it() -> None:
    bridge = Bridge()
    web = bridge.add("web")
    bridge.told(happened.BindFailed(bridge.last(to_do.Bind).effect, web.uid, 0))
    first = bridge.last(to_do.ReadPod).effect
    bridge.after(10)
    bridge.told(happened.PodRead(first, web.uid, bound(web)))
    assert bridge.stage("web") is BindingStage.BOUND


@pytest.mark.parametrize("found", ["nothing", "another", "elsewhere"])
def test_a_read_that_finds_the_pod_anywhere_else_undoes_the_binding(found: str) -> None:
    bridge = Bridge()
    web = bridge.add("web")
    bridge.told(happened.BindFailed(bridge.last(to_do.Bind).effect, web.uid, 504, "gave up"))
    answer = None
    if found == "another":
        answer = pod("web", uid="another", on="n1")
    elif found == "elsewhere":
        answer = bound(web, "n2")
    bridge.told(happened.PodRead(bridge.last(to_do.ReadPod).effect, web.uid, answer))
    assert bridge.stage("web") is None
    assert 'running Bind plugin "DefaultBinder": gave up' in bridge.last(to_do.RecordEvent).note


def test_outcomes_that_nobody_waits_for_are_history() -> None:
    bridge = Bridge()
    web = bridge.add("web")
    effect = bridge.last(to_do.Bind).effect
    for event in (
        happened.BindDone(effect + 100, web.uid),
        happened.BindFailed(effect + 100, web.uid, 409),
        happened.PodRead(effect, web.uid, None),
        happened.PrepareDone(effect, web.uid),
        happened.PrepareFailed(effect, web.uid),
        happened.EvictDone(effect, web.uid),
        happened.EvictFailed(effect, web.uid, 500),
        happened.PatchFailed(effect, web.uid, 500),
        happened.Allowed(web.uid, "Captain"),
        happened.Rejected(web.uid, "Captain"),
        happened.BindDone(effect, "default/other"),
    ):
        assert bridge.told(event) == []
    assert bridge.stage("web") is BindingStage.BINDING


# Pods that are being deleted.


def test_a_bound_pod_that_is_shown_leaving_late_keeps_its_room() -> None:
    bridge = Bridge(cpu="1")
    web = bridge.add("web", cpu="1")
    bridge.told(happened.BindDone(bridge.last(to_do.Bind).effect, web.uid))
    bridge.told(happened.PodUpdated(leaving(web)))
    assert bridge.stage("web") is BindingStage.BOUND
    assert bridge.scheduler.cache.is_assumed(web.uid)


def test_a_reason_that_the_api_does_not_give_is_its_code() -> None:
    bridge = Bridge()
    web = bridge.add("web")
    bridge.told(happened.BindFailed(bridge.last(to_do.Bind).effect, web.uid, 422))
    assert bridge.last(to_do.RecordEvent).note.endswith(": the API answered 422")
