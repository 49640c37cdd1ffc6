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
    Status,
    error,
    unresolvable,
    unschedulable,
)
from tests.framework.stage import POD, framework_of, plugin

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


POINTS = [
    ("reserve", "Reserve", run("run_reserve")),
    ("pre_bind", "PreBind", run("run_pre_bind")),
]


@pytest.mark.parametrize(("point", "title", "walk"), POINTS)
def test_everybody_agrees(point: str, title: str, walk: Run) -> None:
    framework, called = cast(point, OK, OK)
    assert (walk(framework), called) == (OK, ["A", "B"])


@pytest.mark.parametrize(("point", "title", "walk"), POINTS)
@pytest.mark.parametrize("answer", REFUSALS)
def test_a_refusal_ends_the_walk(point: str, title: str, walk: Run, answer: Status) -> None:
    framework, called = cast(point, OK, answer, OK)
    assert (walk(framework), called) == (answer.by("B"), ["A", "B"])


@pytest.mark.parametrize(("point", "title", "walk"), POINTS)
@pytest.mark.parametrize("answer", OTHERS)
def test_any_other_answer_is_an_error(point: str, title: str, walk: Run, answer: Status) -> None:
    framework, called = cast(point, OK, answer, OK)
    wanted = error(f'running {title} plugin "B": {answer.message}').by("B")
    assert (walk(framework), called) == (wanted, ["A", "B"])


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


def test_nobody_binds() -> None:
    assert run("run_bind")(cast("bind", SKIP, SKIP)[0]) == SKIP.by("B")
    assert run("run_bind")(framework_of()) == SKIP


def test_everybody_is_told_that_the_pod_was_bound() -> None:
    framework, called = cast("post_bind", error("does not matter"), None)
    run("run_post_bind")(framework)
    assert called == ["A", "B"]
