"""Fault runs with gangs: safety and liveness of session decisions."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.batch.state.inventory import Inventory
from stowplan.batch.state.jobs import JobInfo
from stowplan.columns import NodeTable
from tests.fault_runs.fault_run import FaultRunFailure, first_failure
from tests.fault_runs.gang_config import GANG_CONFIG, only_additions_start_sessions
from tests.soak import examples, seeds

N_PARTS = 2
FOUND_WITHIN = 120


def part(number: int, first: int = 0) -> range:
    size = examples(20)
    return range(first + number * size, first + (number + 1) * size)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(N_PARTS))
def test_gang_runs(number: int) -> None:
    failure = first_failure(part(number), GANG_CONFIG)
    assert failure is None, str(failure)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(50))
def test_a_thousand_gang_runs(number: int) -> None:
    failure = first_failure(part(number, 1_000_000), GANG_CONFIG)
    assert failure is None, str(failure)


# Planted bugs: each must make a run fail.


def found(*known: int) -> FaultRunFailure:
    """The first failure; seeds that are known to fail are tried first."""
    failure = first_failure(seeds(FOUND_WITHIN, *known), GANG_CONFIG, shrinks=False)
    assert failure is not None, "no run failed"
    return failure


@pytest.mark.slow
def test_a_binding_lost_by_a_stale_update_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: a pod is pending again when the watch delivers an update older than its binding."""

    def pod_updated(self: Inventory, pod: Any) -> None:
        if pod.uid in self._pods and not pod.node_name:
            self.not_bound(pod.uid)
        right(self, pod)

    right = Inventory.pod_updated
    monkeypatch.setattr(Inventory, "pod_updated", pod_updated)
    assert found(46).error


@pytest.mark.slow
def test_missing_pods_of_a_recreated_node_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: the pods of a deleted node are forgotten, and the node comes back empty."""

    def remove_node(self: NodeTable, name: str) -> None:
        right(self, name)
        for uid in self._absent.pop(name, {}):
            del self._home[uid]

    right = NodeTable.remove_node
    monkeypatch.setattr(NodeTable, "remove_node", remove_node)
    assert "on no node" in found().error or "sessions: " in found().error


@pytest.mark.slow
def test_a_session_that_is_not_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: only additions trigger a session, not changes or deletions."""

    only_additions_start_sessions(monkeypatch)
    assert "a session was due" in found().error


@pytest.mark.slow
def test_a_gang_that_starts_in_part_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: tasks are bound although their gang is not ready."""
    monkeypatch.setattr(JobInfo, "is_ready", property(lambda self: True))
    assert "starts with" in found().error
