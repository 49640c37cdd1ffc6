"""Every recorded attempt of kube-scheduler 1.36.2, by both walks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stowplan.conformance import attempt_cases
from tests.conformance.compare import WALKS, attempt_differences, recorded

DATA = Path(__file__).parent / "data" / "attempts"
FAMILIES = sorted(path.name.removesuffix(".jsonl.gz") for path in DATA.glob("*.jsonl.gz"))


@WALKS
@pytest.mark.parametrize("family", FAMILIES)
def test_every_answer_is_the_originals(family: str, columns: bool, one_in: int) -> None:
    wrong = {}
    for line, want in recorded(DATA / f"{family}.jsonl.gz", one_in):
        case = attempt_cases.read_case(line)
        found = attempt_differences(want, attempt_cases.answer(case, columns=columns))
        if found:
            wrong[case.id] = found[:3]
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


def test_all_families_are_here() -> None:
    assert len(FAMILIES) == 16


def test_a_changed_answer_is_noticed() -> None:
    line, want = next(recorded(DATA / "resources.jsonl.gz"))
    got = attempt_cases.answer(attempt_cases.read_case(line))
    got["message"] = got["message"].replace("0/", "1/")
    assert attempt_differences(want, got) == [
        f".message: want {want['message']!r}, got {got['message']!r}"
    ]
