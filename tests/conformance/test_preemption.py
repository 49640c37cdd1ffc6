"""The recorded preemptions of kube-scheduler 1.36.2 again, by each way of doing dry runs."""

from __future__ import annotations

import json

import pytest

from stowplan.plugins import default_preemption
from tests.conformance import test_attempts, test_sequences

ALL_BY_ARITHMETIC, NONE_BY_ARITHMETIC = 1, 10**9


@pytest.fixture(params=[ALL_BY_ARITHMETIC, NONE_BY_ARITHMETIC], ids=["many", "few"], autouse=True)
def from_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_preemption, "MANY", request.param)


@pytest.mark.parametrize("family", ["preemption", "nominated", "mixed"])
def test_every_answer_is_the_originals(family: str) -> None:
    test_attempts.test_every_answer_is_the_originals(family, columns=True)


@pytest.mark.parametrize("family", ["preemption", "mixed"])
def test_every_step_is_the_originals(family: str) -> None:
    wrong = test_sequences.wrong_in(family, columns=True)
    assert not wrong, json.dumps(wrong, indent=1)[:4000]
