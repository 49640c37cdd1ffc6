"""Fault runs with gangs that request GPU cards: sessions and profiles give no card twice."""

from __future__ import annotations

import pytest

from stowplan.assembly.deciders import Deciders
from tests.fault_runs import card_gang_config
from tests.fault_runs.card_gang_config import CARD_GANG_CONFIG
from tests.fault_runs.fault_run import first_failure, run_with_faults
from tests.soak import examples

SEEDS_SOAKED = 1_000_000
FOUND_WITHIN = range(10)


def test_no_card_is_given_twice() -> None:
    failure = first_failure(range(examples(4)), CARD_GANG_CONFIG)
    assert failure is None, str(failure)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(10))
def test_a_thousand_runs(number: int) -> None:
    first = SEEDS_SOAKED + 100 * number
    failure = first_failure(range(first, first + 100), CARD_GANG_CONFIG)
    assert failure is None, str(failure)


# Planted bugs.


def test_sessions_that_count_no_cards_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    card_gang_config.deciders.cache_clear()
    monkeypatch.setattr(Deciders, "_card_arguments", lambda self: None)
    try:
        found = (run_with_faults(seed, CARD_GANG_CONFIG) for seed in FOUND_WITHIN)
        assert any("names no cards" in str(failure) for failure in found)
    finally:
        card_gang_config.deciders.cache_clear()
