"""Fault runs with PodGroups of scheduling.k8s.io: bound whole or not at all, and never waiting for
each other."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.framework import OK
from stowplan.framework.status import Status
from stowplan.plugins.pod_groups.gang_scheduling import GangScheduling
from tests.fault_runs.fault_run import first_failure
from tests.fault_runs.native_gang_config import NATIVE_GANG_CONFIG
from tests.soak import examples

FOUND_WITHIN = range(60)


@pytest.mark.slow
def test_native_gang_runs() -> None:
    failure = first_failure(range(examples(6)), NATIVE_GANG_CONFIG)
    assert failure is None, str(failure)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(10))
def test_many_native_gang_runs(number: int) -> None:
    failure = first_failure(range(1000 + 40 * number, 1040 + 40 * number), NATIVE_GANG_CONFIG)
    assert failure is None, str(failure)


@pytest.mark.parametrize(
    ("seed", "what"),
    [(614403, "a gang is woken when another client binds the member that had the room of others")],
)
def test_native_gang_seeds_that_found_bugs(seed: int, what: str) -> None:
    failure = first_failure(range(seed, seed + 1), NATIVE_GANG_CONFIG)
    assert failure is None, f"{what}: {failure}"


# Planted bugs: each must make a run fail.


@pytest.mark.slow
def test_a_gang_bound_in_part_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: nobody waits for the quorum."""

    def permit(self: GangScheduling, *_: Any) -> Status:
        return OK

    monkeypatch.setattr(GangScheduling, "permit", permit)
    failure = first_failure(FOUND_WITHIN, NATIVE_GANG_CONFIG)
    assert failure is not None
    assert "is bound with" in failure.error


@pytest.mark.slow
def test_a_gang_that_is_not_woken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: neither a new group nor a new member wakes the others."""
    monkeypatch.setattr(GangScheduling, "events_to_register", lambda self: ())
    assert first_failure(FOUND_WITHIN, NATIVE_GANG_CONFIG) is not None
