"""The session check accepts valid sessions."""

from __future__ import annotations

import pytest

from stowplan.testing import session_invariants
from stowplan.testing.session_invariants import check_session
from tests.fault_runs.auditor import Violation
from tests.scenarios.cluster_script import ClusterScript

PRIORITY_CLASSES = ["class low 1", "class mid 50", "class high 100"]


def check_commands(*commands: str) -> None:
    script = ClusterScript()
    script.check = check_session
    for command in (*PRIORITY_CLASSES, *commands):
        script.play([command])


def where_room_is_promised() -> None:
    """A queue preempts within itself, and then others reclaim what exceeds its share."""
    check_commands(
        "queue q0 weight=3",
        "queue q1 weight=1",
        "nodes 1 cpu=3 memory=64Gi",
        "job j0 min=1 queue=q1 : p*1 cpu=2",
        "wait 3s",
        "job j1 min=1 queue=q1 : p*2 cpu=1",
        "wait 2s",
        "job j2 min=1 queue=q0 : p*1 cpu=2",
        "wait 1s",
        "job j3 min=1 queue=q1 priority=mid : p*1 cpu=1 priority=mid",
        "wait 3s",
    )


def test_earlier_nominations_count_for_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where_room_is_promised()
    monkeypatch.setattr(session_invariants, "pipelined_before", lambda session: set())
    with pytest.raises(Violation, match="queue q1 keeps"):
        where_room_is_promised()


def test_placements_without_victims_may_be_undone_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def where_a_gang_takes_what_victims_leave_over() -> None:
        check_commands(
            "queue q0 weight=2",
            "queue q1 weight=3",
            "nodes 3 cpu=3 memory=64Gi",
            "job j0 min=2 queue=q1 priority=low : p*2 cpu=1 priority=low runs=4",
            "wait 3s",
            "job j1 min=2 queue=q0 : p*5 cpu=1",
            "wait 3s",
            "job j2 min=1 queue=q0 priority=low : p*4 cpu=2 priority=low",
            "wait 1s",
            "job j3 min=5 queue=q1 priority=high : p*5 cpu=1 priority=high",
            "wait 3s",
        )

    where_a_gang_takes_what_victims_leave_over()
    monkeypatch.setattr(session_invariants, "_without_victims", lambda *_: [])
    with pytest.raises(Violation, match="is short nevertheless"):
        where_a_gang_takes_what_victims_leave_over()
