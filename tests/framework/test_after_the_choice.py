"""Reserve, Permit, PreBind, Bind and PostBind.

Source: kube-scheduler v1.36, framework/runtime RunReservePluginsReserve, RunPermitPlugins,
RunPreBindPlugins, RunBindPlugins.
"""

from collections.abc import Callable
from typing import Any

import pytest

from stowplan.framework import (
    OK,
    SKIP,
    Code,
    CycleState,
    Framework,
    PermitWait,
    PreBindWait,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from tests.framework.stage import POD, framework_of, plugin, snapshot

NO = unschedulable("taken")
NEVER = unresolvable("gone")
PENDING = Status(Code.PENDING, ("not yet",))
WAIT = Status(Code.WAIT, ("hold on",))

REFUSALS = [NO, NEVER, PENDING]
OTHERS = [error("broken"), WAIT, SKIP]


def cast(point: str, *answers: Any, unreserve: bool = False) -> tuple[Framework, list[str]]:
    """Plugins A, B, C with these answers at a point, and who was called, in order."""
    called: list[str] = []

    def acts(name: str, answer: Any) -> type[Any]:
        def act(self: Any, node_name: str) -> Any:
            assert node_name == "n1"
            called.append(name)
            return answer

        def gives_back(self: Any) -> None:
            called.append(f"-{name}")

        others = {"unreserve": gives_back} if unreserve else {}
        return plugin(name, **{point: act}, **others)

    return framework_of(*map(acts, "ABC", answers)), called


Run = Callable[[Framework], Any]


def run(method: str) -> Run:
    return lambda framework: getattr(framework, method)(POD, "n1", CycleState())


def test_everybody_agrees() -> None:
    framework, called = cast("reserve", OK, OK)
    assert (run("run_reserve")(framework), called) == (OK, ["A", "B"])


@pytest.mark.parametrize("answer", REFUSALS)
def test_a_refusal_ends_the_walk(answer: Status) -> None:
    framework, called = cast("reserve", OK, answer, OK)
    assert (run("run_reserve")(framework), called) == (answer.by("B"), ["A", "B"])


@pytest.mark.parametrize("answer", OTHERS)
def test_any_other_answer_is_an_error(answer: Status) -> None:
    framework, called = cast("reserve", OK, answer, OK)
    wanted = error(f'running Reserve plugin "B": {answer.message}').by("B")
    assert (run("run_reserve")(framework), called) == (wanted, ["A", "B"])


def test_everybody_gives_back_in_reverse_order() -> None:
    framework, called = cast("reserve", OK, NO, OK, unreserve=True)
    assert run("run_reserve")(framework) == NO.by("B")
    called.clear()
    run("run_unreserve")(framework)
    # Also C, which never came to reserve.
    assert called == ["-C", "-B", "-A"]


def test_a_plugin_may_reserve_and_have_nothing_to_give_back() -> None:
    framework, called = cast("reserve", OK)
    run("run_unreserve")(framework)
    assert called == []


# Permit.


def test_a_wait_lets_the_others_be_asked() -> None:
    framework, called = cast("permit", PermitWait(30), OK, PermitWait(60))
    waits = run("run_permit")(framework)
    assert waits == {"A": PermitWait(30), "C": PermitWait(60)}
    assert called == ["A", "B", "C"]


def test_a_wait_is_at_most_fifteen_minutes() -> None:
    framework, _ = cast("permit", PermitWait(3600), PermitWait(900))
    assert run("run_permit")(framework) == {"A": PermitWait(900), "B": PermitWait(900)}


@pytest.mark.parametrize("answer", REFUSALS)
def test_a_refusal_beats_an_earlier_wait(answer: Status) -> None:
    framework, called = cast("permit", PermitWait(30), answer, OK)
    assert (run("run_permit")(framework), called) == (answer.by("B"), ["A", "B"])


@pytest.mark.parametrize("answer", OTHERS)
def test_any_other_answer_of_permit_is_an_error(answer: Status) -> None:
    framework, _ = cast("permit", OK, answer)
    wanted = error(f'running Permit plugin "B": {answer.message}').by("B")
    assert run("run_permit")(framework) == wanted


def test_all_permit() -> None:
    framework, _ = cast("permit", OK, OK)
    assert run("run_permit")(framework) == OK


# PreBind.


def pre_bind(answer: Any, *skipped: str) -> Any:
    """What comes of an answer of `pre_bind`."""
    framework, _ = cast("pre_bind", answer)
    state = CycleState()
    state.skip_pre_bind.update(skipped)
    return framework.run_pre_bind_of(framework.members["A"], POD, "n1", state)


def test_pre_bind() -> None:
    assert pre_bind(OK) == OK
    assert pre_bind(PreBindWait(timeout_s=3)) == PreBindWait(timeout_s=3)
    assert [pre_bind(answer) for answer in REFUSALS] == [a.by("A") for a in REFUSALS]
    for answer in OTHERS:
        assert pre_bind(answer) == error(f'running PreBind plugin "A": {answer.message}').by("A")
        assert pre_bind(answer, "A") == OK


def progress(*answers: Any) -> Status:
    """What comes of the answer of `pre_bind_progress`, or of having no such method."""
    methods = {"pre_bind_progress": answers[0]} if answers else {}
    framework = framework_of(plugin("A", pre_bind=PreBindWait(), **methods))
    state = CycleState()
    assert framework.run_pre_bind_pre_flight(POD, "n1", state).is_success is bool(answers)
    return framework.run_pre_bind_progress(framework.members["A"], POD, "n1", snapshot(), state)


def test_progress() -> None:
    assert progress() == OK
    assert progress(OK) == OK
    assert progress(WAIT) == WAIT
    assert progress(NO) == NO.by("A")
    assert progress(error("broken")) == error('running PreBind plugin "A": broken').by("A")
    assert progress(SKIP) == error('running PreBind plugin "A": ').by("A")


def test_who_rests_is_not_asked_about_preparations() -> None:
    framework = framework_of(
        plugin("A", pre_filter=SKIP, filter=OK, pre_bind=NO, pre_bind_pre_flight=OK)
    )
    framework.members["A"].rests_when_skipped = True
    state = CycleState()
    framework.run_pre_filter(POD, snapshot(), state)
    assert framework.run_pre_bind_pre_flight(POD, "n1", state) == SKIP
    assert state.skip_pre_bind == {"A"}


# Bind.


@pytest.mark.parametrize("answer", [OK, *REFUSALS])
def test_the_first_binder_that_does_not_skip_decides(answer: Status) -> None:
    framework, called = cast("bind", SKIP, answer, OK)
    assert (run("run_bind")(framework), called) == (answer.by("B"), ["A", "B"])


@pytest.mark.parametrize("answer", [error("broken"), WAIT])
def test_a_failure_to_bind_is_an_error(answer: Status) -> None:
    framework, called = cast("bind", answer, OK)
    wanted = error(f'running Bind plugin "A": {answer.message}').by("A")
    assert (run("run_bind")(framework), called) == (wanted, ["A"])


def test_no_plugin_binds() -> None:
    assert run("run_bind")(cast("bind", SKIP, SKIP)[0]) == SKIP.by("B")
    assert run("run_bind")(framework_of()) == SKIP


def test_every_plugin_is_notified_that_the_pod_was_bound() -> None:
    framework, called = cast("post_bind", error("does not matter"), None)
    run("run_post_bind")(framework)
    assert called == ["A", "B"]
