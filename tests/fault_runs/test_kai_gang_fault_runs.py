"""Fault runs with KAI's model: queues, gangs and nodes come and go while requests fail."""

from __future__ import annotations

import pytest

from stowplan.batch.queue_models.kai.model import kai_model
from stowplan.batch.queue_models.kai.model.kai_state import KaiState
from stowplan.batch.queue_models.model_decider import ModelDecider
from tests.fault_runs.fault_run import FaultRunFailure, first_failure
from tests.fault_runs.gang_config import only_additions_start_sessions
from tests.fault_runs.kai_gang_config import KAI_GANG_CONFIG
from tests.soak import examples, seeds

SEEDS_SOAKED = 1_000_000
FOUND_WITHIN = 120


@pytest.mark.slow
def test_kai_gang_runs() -> None:
    failure = first_failure(range(examples(60)), KAI_GANG_CONFIG)
    assert failure is None, str(failure)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_a_thousand_kai_gang_runs(number: int) -> None:
    first = SEEDS_SOAKED + 50 * number
    failure = first_failure(range(first, first + 50), KAI_GANG_CONFIG)
    assert failure is None, str(failure)


# Planted bugs: each must make a run fail.


def found(*known: int) -> FaultRunFailure:
    """The first failure; seeds that are known to fail are tried first."""
    failure = first_failure(seeds(FOUND_WITHIN, *known), KAI_GANG_CONFIG, shrinks=False)
    assert failure is not None, "no run failed"
    return failure


@pytest.mark.slow
def test_victims_on_nodes_that_are_gone_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: jobs with pods on nodes that are gone may be victims."""
    monkeypatch.setattr(KaiState, "_jobs_off_nodes", lambda self: frozenset())
    assert "KeyError" in found().error


@pytest.mark.slow
def test_sessions_that_decide_the_same_for_ever_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: who takes the place of a pod that is not bound yet waits for it to terminate."""
    monkeypatch.setattr(kai_model, "place_instead", lambda *_: None)
    assert "not idle at rest" in found(13181).error


@pytest.mark.slow
def test_a_session_that_is_not_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: only additions trigger a session, not changes or deletions."""

    only_additions_start_sessions(monkeypatch)
    assert "a session was due" in found().error


@pytest.mark.slow
def test_bindings_that_fail_and_stay_counted_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a pod whose binding failed counts as placed."""
    monkeypatch.setattr(ModelDecider, "forgotten", lambda self, uid: None)
    assert "differs from the cluster" in found(17).error
