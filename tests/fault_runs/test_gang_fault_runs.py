"""Storms with gangs: whatever goes wrong, sessions decide nothing that they must not."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.batch.state.inventory import Inventory
from stowplan.batch.state.jobs import JobInfo
from stowplan.batch.state.nodes import NodeLedger
from stowplan.fault_runs.fault_run import FaultRunFailure, first_failure
from stowplan.scheduler.session_lane import SessionLane
from tests.fault_runs.gang_fault_runs import KIT
from tests.soak import examples

N_PARTS = 4
FOUND_WITHIN = range(120)


def part(number: int, first: int = 0) -> range:
    size = examples(20)
    return range(first + number * size, first + (number + 1) * size)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(N_PARTS))
def test_storms_with_gangs(number: int) -> None:
    failure = first_failure(part(number), KIT)
    assert failure is None, str(failure)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(50))
def test_a_thousand_storms_with_gangs(number: int) -> None:
    failure = first_failure(part(number, 1_000_000), KIT)
    assert failure is None, str(failure)


# Planted bugs.


def found() -> FaultRunFailure:
    failure = first_failure(FOUND_WITHIN, KIT)
    assert failure is not None, "no storm showed the mistake"
    return failure


@pytest.mark.slow
def test_a_binding_that_an_update_makes_forgotten_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: a pod is pending again when the watch shows it before it shows the binding."""

    def pod_updated(self: Inventory, pod: Any) -> None:
        if pod.uid in self._pods and not pod.node_name:
            self.not_bound(pod.uid)
        right(self, pod)

    right = Inventory.pod_updated
    monkeypatch.setattr(Inventory, "pod_updated", pod_updated)
    assert found().what


@pytest.mark.slow
def test_room_on_a_node_that_comes_back_with_its_pods_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: a node that goes takes its pods with it, and comes back empty."""

    def leave_ghost(self: NodeLedger, row: int) -> None:
        self._drop_row(row)

    monkeypatch.setattr(NodeLedger, "_keep_gone_node", leave_ghost)
    assert "sessions: " in found().what or "wanted" in found().what


@pytest.mark.slow
def test_a_session_that_is_not_held_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: only what comes is a reason for a session, not what changes or goes."""

    def pod_deleted(self: SessionLane, uid: str) -> None:
        stirred = self._has_changes
        right(self, uid)
        self._has_changes = stirred

    right = SessionLane.pod_deleted
    monkeypatch.setattr(SessionLane, "pod_deleted", pod_deleted)
    monkeypatch.setattr(
        "stowplan.scheduler.session_lane._is_relevant_to_sessions", lambda before, after: False
    )
    assert "a session was due" in found().what


@pytest.mark.slow
def test_a_gang_that_starts_in_part_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: whatever has room is bound."""
    monkeypatch.setattr(JobInfo, "is_ready", property(lambda self: True))
    assert "starts with" in found().what
