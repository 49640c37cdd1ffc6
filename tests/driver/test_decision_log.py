"""The decision log: a line for each decision, with keys, once per reason, at a limited rate."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stowplan.driver import logs
from stowplan.driver.live import decision_log
from stowplan.driver.live.configuration_files import read_configuration_files
from stowplan.driver.live.decision_log import BURST, DecisionLog
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.podgroup import PodGroupCondition, PodGroupStatus
from stowplan.objects.scheduling_group import SCHEDULING_API_VERSION
from stowplan.testing import pod
from tests.driver.deciders import default_deciders
from tests.driver.small_api import SmallApi
from tests.driver.test_live import GANGS, gang_member, group_of_three, run, scheduler

NO_FIT = "0/5 nodes are available: 5 Insufficient cpu."
Line = dict[str, Any]


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    """What is logged from debug on: level, message and keys."""
    found: list[Line] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tree = {"level": record.levelname, "msg": record.getMessage()}
            found.append(tree | getattr(record, "keys", {}))

    logger, handler = logging.getLogger("stowplan.decisions"), Kept()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


def made() -> DecisionLog:
    scheduler = default_deciders("stowplan").scheduler(engine="walk")
    return DecisionLog(scheduler, {"default/old": "n1"}.get)  # type: ignore[arg-type]


def event(name: str, reason: str, note: str, kind: str = "Warning") -> to_do.RecordEvent:
    return to_do.RecordEvent(
        1, 1, f"uid-{name}", "default", name, "stowplan", kind, reason, "Scheduling", note
    )


def group_event(reason: str, note: str) -> to_do.RecordEvent:
    return to_do.RecordEvent(
        1, 1, "uid-g", "default", "g", "kube-batch", "Warning", reason, "Scheduling", note,
        "PodGroup", "scheduling.sigs.dev/v1alpha2",
    )  # fmt: skip


def group_status(phase: str, running: int = 0, why: str = "") -> to_do.PatchGroup:
    condition = PodGroupCondition("Unschedulable", "True", reason="NotEnough", message=why)
    status = PodGroupStatus(phase, (condition,) if why else (), running)
    return to_do.PatchGroup(1, 1, "uid-g", "default", "g", "v", status)


def test_a_pod_that_fits_nowhere_is_logged_again_when_the_reason_changes(lines: list[Line]) -> None:
    log = made()
    notes = [NO_FIT, NO_FIT, "0/6 nodes are available: 6 Insufficient cpu.", "0/6: 6 cordoned."]
    for now, note in enumerate(notes):
        log.handled([], [event("a", "FailedScheduling", note)], now)
    assert [line.get("reason") for line in lines] == [notes[0], notes[3]]
    assert lines[0] == {
        "level": "INFO",
        "msg": "Unable to schedule pod; no fit; waiting",
        "pod": "default/a",
        "reason": NO_FIT,
    }
    # One that has gone is forgotten, and so is one that is bound.
    log.handled([happened.PodDeleted(pod("a", uid="uid-a"))], [], 9)
    log.handled([], [event("a", "FailedScheduling", notes[3])], 10)
    assert len(lines) == 3
    assert (log._scores, list(log._logged_pods)) == ({}, ["uid-a"])
    log.handled(
        [], [event("a", "Scheduled", "Successfully assigned default/a to n1", "Normal")], 11
    )
    assert log._logged_pods == {}


def test_an_error_is_no_refusal(lines: list[Line]) -> None:
    patch = to_do.PatchStatus(1, 1, "uid-a", "default", "a", "SchedulerError", "no such claim")
    made().handled([], [event("a", "FailedScheduling", "no such claim"), patch], 0)
    (line,) = lines
    assert (line["level"], line["msg"]) == ("ERROR", "Error scheduling pod; retrying")


def test_a_victim_is_logged_with_its_node_and_whose_room_it_was(lines: list[Line]) -> None:
    log = made()
    log.handled([], [event("vip", "FailedScheduling", NO_FIT)], 0)
    note = "Preempted by pod uid-vip on node n1"
    log.handled([], [event("gone", "Preempted", note, "Normal")], 1)
    assert lines[1] == {
        "level": "INFO",
        "msg": "Preempted pod",
        "pod": "default/gone",
        "node": "n1",
        "preemptor": "default/vip",
        "reason": note,
    }
    # A session's.
    evict = to_do.Evict(1, 1, "uid-old", "default", "old", "uid-vip", "kube-batch: reclaim")
    log.handled([], [evict, event("old", "Preempted", "kube-batch: reclaim", "Normal")], 1)
    assert lines[2] == lines[1] | {"pod": "default/old", "reason": "kube-batch: reclaim"}


def test_a_group_is_logged_when_its_status_or_a_reason_changes(lines: list[Line]) -> None:
    log = made()
    effects: list[Effect] = [
        group_status("Pending", why="2/3 tasks"),
        group_status("Pending", why="2/3 tasks"),
        group_event("Unschedulable", "2/3 tasks in gang unschedulable"),
        group_event("Unschedulable", "1/3 tasks in gang unschedulable"),
        group_status("Running", 3),
    ]
    log.handled([], effects, 0)
    assert [(line["msg"], line.get("phase"), line.get("reason")) for line in lines] == [
        ("PodGroup status changed", "Pending", "2/3 tasks"),
        ("PodGroup event", None, "2/3 tasks in gang unschedulable"),
        ("PodGroup status changed", "Running", None),
    ]
    assert lines[2]["running"] == 3
    assert {line["podGroup"] for line in lines} == {"default/g"}


def test_groups_of_kubernetes_have_a_condition(lines: list[Line]) -> None:
    log = made()
    reason, message = "Unschedulable", "pod group is unschedulable"
    for status, why in [("False", (reason, message)), ("True", ("Scheduled", ""))]:
        condition = PodGroupCondition("PodGroupScheduled", status, reason=why[0], message=why[1])
        effect = to_do.PatchGroup(
            1, 1, "uid-g", "default", "g", SCHEDULING_API_VERSION, PodGroupStatus("", (condition,))
        )
        log.handled([], [effect, effect], 0)
    same = {
        "level": "INFO",
        "msg": "PodGroup status changed",
        "podGroup": "default/g",
        "condition": "PodGroupScheduled",
    }
    assert lines == [
        same | {"status": "False", "reason": message},
        same | {"status": "True", "reason": "Scheduled"},
    ]


def test_lines_over_the_rate_limit_are_counted(lines: list[Line]) -> None:
    log = made()
    many_effects: list[Effect] = [
        event(f"p{i}", "FailedScheduling", NO_FIT) for i in range(BURST + 50)
    ]
    log.handled([], many_effects, 0)
    assert len(lines) == BURST
    # Another kind of line has a limit of its own.
    log.handled([], [event("x", "Scheduled", "Successfully assigned default/x to n1", "Normal")], 0)
    assert lines[-1]["msg"] == "Successfully bound pod to node"
    log.handled([], [], SECOND)
    assert lines[-1] == {
        "level": "WARNING",
        "msg": "Dropped lines over the rate limit",
        "lines": "Unable to schedule pod; no fit; waiting",
        "count": 50,
    }
    log.handled([], [], 2 * SECOND)
    assert len(lines) == BURST + 2


# A whole scheduler.


def named(lines: list[Line], message: str) -> list[Line]:
    return [line for line in lines if line["msg"] == message]


@pytest.mark.parametrize("engine", ["walk", "compiled"])
def test_a_live_scheduler_logs_what_it_binds_refuses_and_preempts(
    engine: str, lines: list[Line]
) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n1", cpu="1")
            api.node("n2", cpu="4")
            api.pod("small", cpu="400m")
            api.pod("huge", cpu="40")
            async with scheduler(api, engine=engine) as live:
                await api.until(lambda: bool(api.placed()["small"]))
                await api.until(lambda: bool(named(lines, decision_log.UNSCHEDULABLE)))
                await api.until(lambda: bool(named(lines, decision_log.BOUND)))
                api.pod("vip", cpu="3800m", priority=10)
                await api.until(lambda: len(named(lines, decision_log.BOUND)) == 2)
                assert live.decision_log._scores == {}

    run(steps())
    bound = named(lines, decision_log.BOUND)[0]
    assert (bound["pod"], bound["node"]) == ("default/small", "n2")
    assert 0 < bound["score"] <= 1000
    refused = named(lines, decision_log.UNSCHEDULABLE)[0]
    assert refused["pod"] == "default/huge"
    assert refused["reason"].startswith("0/2 nodes are available: 2 Insufficient cpu")
    (victim,) = named(lines, decision_log.PREEMPTED)
    assert (victim["pod"], victim["node"]) == ("default/small", "n2")
    assert victim["preemptor"] == "default/vip"


RAISES = """\
class Weigh:
    name = "Weigh"

    def filter(self, pod, node):
        return 1 / 0
"""


def test_a_plugin_that_raises_is_logged_with_file_and_line(
    tmp_path: Path, lines: list[Line]
) -> None:
    async def steps() -> None:
        file = tmp_path / "weigh.py"
        file.write_text(RAISES)
        found, _ = read_configuration_files([], [str(file)])
        async with SmallApi() as api:
            api.node("n1")
            api.pod("one")
            async with scheduler(api, decider=found):
                await api.until(lambda: bool(named(lines, decision_log.PLUGIN_FAILED)))
                await api.until(lambda: any("/events" in path for _, path, _ in api.writes))
            (event,) = (body for _, path, body in api.writes if path.endswith("/events"))
            assert "weigh.py:5" in event["note"]

    run(steps())
    (line,) = named(lines, decision_log.PLUGIN_FAILED)
    assert line["level"] == "ERROR"
    assert (line["pod"], line["plugin"], line["at"]) == ("default/one", "Weigh", "weigh.py:5")
    assert "ZeroDivisionError" in line["reason"]


@pytest.mark.slow
def test_sessions_and_groups_are_logged(tmp_path: Path, lines: list[Line]) -> None:
    async def steps() -> None:
        async with SmallApi({"podgroups", "queues", "priorityclasses"}) as api:
            config = tmp_path / "gangs.yaml"
            config.write_text(GANGS)
            found, _ = read_configuration_files([str(config)])
            api.node("n1", cpu="2")
            group_of_three(api)
            for i in range(3):
                # The session's second scheduler name counts as its first.
                gang_member(api, i, "volcano")
            async with scheduler(api, decider=found):
                await api.until(lambda: bool(named(lines, decision_log.GROUP_EVENT)))
                api.node("n2", cpu="4")
                await api.until(lambda: len(named(lines, decision_log.BOUND)) == 3)

    run(steps())
    sessions = [line for line in named(lines, decision_log.SESSION) if line["level"] == "INFO"]
    assert sessions
    assert sum(line["bindings"] for line in sessions) == 3
    phases = [line["phase"] for line in named(lines, decision_log.GROUP_STATUS)]
    assert "Pending" in phases


def test_a_dry_run_binds_nothing_and_logs_no_binding(lines: list[Line]) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n1")
            api.pod("one")
            async with scheduler(api, dry_run=True) as live:
                comparer = live.comparer
                assert comparer is not None
                await api.until(lambda: len(comparer.ours_only()) == 1)

    run(steps())
    assert lines == []


# What is written.


def written(form: str, capsys: pytest.CaptureFixture[str], **how: Any) -> list[str]:
    root = logging.getLogger(logs.ROOT)
    handlers, propagates = list(root.handlers), root.propagate
    try:
        logs.configure_logging(form, **how)
        log = made()
        log.handled([], [event("a", "FailedScheduling", 'got "x"\nwanted more')], 0)
        logging.getLogger("stowplan.scheduler").info("begun")
        logging.getLogger("stowplan.scheduler").debug("details")
    finally:
        logs.configure_logging()
        root.handlers[:], root.propagate = handlers, propagates
        for part in ("", *logs.PARTS):
            name = f"{logs.ROOT}.{part}" if part else logs.ROOT
            logging.getLogger(name).setLevel(logging.NOTSET)
    return capsys.readouterr().err.splitlines()


def test_keys_are_quoted_as_klog_quotes_them(capsys: pytest.CaptureFixture[str]) -> None:
    line, _ = written("text", capsys)
    assert line.endswith(
        "INFO    decisions: Unable to schedule pod; no fit; waiting"
        ' pod="default/a" reason="got \\"x\\"\\nwanted more"'
    )


def test_in_json_they_are_keys(capsys: pytest.CaptureFixture[str]) -> None:
    tree = json.loads(written("json", capsys)[0])
    assert tree.pop("ts") > 0
    assert tree == {
        "level": "info",
        "part": "decisions",
        "msg": "Unable to schedule pod; no fit; waiting",
        "pod": "default/a",
        "reason": 'got "x"\nwanted more',
    }


@pytest.mark.parametrize(
    ("how", "parts"),
    [
        ({}, ["decisions", "scheduler"]),
        ({"verbosity": 0}, ["scheduler"]),
        ({"verbosity": 2}, ["decisions", "scheduler"]),
        ({"verbosity": 4}, ["decisions", "scheduler", "scheduler"]),
        ({"verbosity": 0, "levels": "decisions=info"}, ["decisions", "scheduler"]),
        ({"levels": "decisions=error"}, ["scheduler"]),
        ({"levels": "warning"}, []),
    ],
)
def test_levels_and_verbosity(
    how: dict[str, Any], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = written("json", capsys, **how)
    assert [json.loads(line)["part"] for line in found] == parts
