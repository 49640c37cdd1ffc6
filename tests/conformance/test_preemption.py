"""The recorded preemptions of kube-scheduler 1.36.2, by each dry-run implementation."""

from __future__ import annotations

import json

import pytest

from stowplan.plugins.preemption import default_preemption
from tests.conformance import test_attempts, test_sequences
from tests.conformance.compare import ONE_IN_AGAIN

ALL_BY_ARITHMETIC, NONE_BY_ARITHMETIC = 1, 10**9


WAYS = [
    pytest.param((ALL_BY_ARITHMETIC, ONE_IN_AGAIN), id="many-sample"),
    pytest.param((ALL_BY_ARITHMETIC, 1), id="many", marks=pytest.mark.soak),
    pytest.param((NONE_BY_ARITHMETIC, 2 * ONE_IN_AGAIN), id="few-sample"),
    pytest.param((NONE_BY_ARITHMETIC, 1), id="few", marks=pytest.mark.soak),
]


@pytest.fixture(params=WAYS)
def one_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A dry-run implementation, and the sampling of recorded lines."""
    many, one_in = request.param
    monkeypatch.setattr(default_preemption, "VECTOR_DRY_RUN_MIN", many)
    return int(one_in)


@pytest.mark.parametrize("family", ["preemption", "nominated", "mixed"])
def test_every_answer_is_the_originals(family: str, one_in: int) -> None:
    test_attempts.test_every_answer_is_the_originals(family, columns=True, one_in=one_in)


@pytest.mark.parametrize("family", ["preemption", "mixed"])
def test_every_step_is_the_originals(family: str, one_in: int) -> None:
    wrong = test_sequences.wrong_in(family, columns=True, one_in=one_in)
    assert not wrong, json.dumps(wrong, indent=1)[:4000]
