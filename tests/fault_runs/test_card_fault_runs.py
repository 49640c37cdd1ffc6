"""Fault runs with GPU cards: no card is given twice, and what is left follows from annotations."""

from __future__ import annotations

from collections import Counter

import pytest

from stowplan.plugins.gpu_share.card_admission import CardAdmission
from stowplan.plugins.gpu_share.card_ledger import CardLedger
from stowplan.plugins.gpu_share.conventions.device_ledger import DeviceLedger
from tests.fault_runs.card_config import CARD_CONFIG
from tests.fault_runs.fault_run import FaultRun, first_failure
from tests.soak import examples

SEEDS_SOAKED = 1_000_000
FOUND_WITHIN = range(30)


def test_no_card_is_given_twice() -> None:
    failure = first_failure(range(examples(12)), CARD_CONFIG)
    assert failure is None, str(failure)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_two_thousand_runs(number: int) -> None:
    first = SEEDS_SOAKED + 100 * number
    failure = first_failure(range(first, first + 100), CARD_CONFIG)
    assert failure is None, str(failure)


@pytest.mark.soak
def test_faults_hit_pods_with_cards() -> None:
    wanted = {"rejected by a node", "restart", "restart before a request", "bind reply lost"}
    counts: Counter[str] = Counter()
    for seed in range(300):
        fault_run = FaultRun(seed, CARD_CONFIG)
        fault_run.run()
        counts += fault_run.injected_counts
        if wanted <= counts.keys():
            return
    raise AssertionError(f"not hit: {wanted - counts.keys()}")


# Planted bugs.


@pytest.mark.parametrize("ledger", [CardLedger, DeviceLedger])
def test_a_scheduler_that_forgets_what_it_reserved_is_found(
    ledger: type[CardLedger | DeviceLedger], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "reserve", lambda self, uid, row, cards: None)
    assert first_failure(FOUND_WITHIN, CARD_CONFIG, shrinks=False) is not None


def test_a_scheduler_that_reads_no_annotations_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_reservation(self: CardLedger, pod: object, request: object) -> object:
        return self._reserved.get(pod.uid)  # type: ignore[attr-defined]

    monkeypatch.setattr(CardLedger, "cards_of", of_reservation)
    assert first_failure(FOUND_WITHIN, CARD_CONFIG, shrinks=False) is not None


@pytest.mark.soak
def test_nodes_that_admit_everything_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CardAdmission, "refusal", lambda self, pod, node: "")
    assert first_failure(range(1500), CARD_CONFIG, shrinks=False) is not None
