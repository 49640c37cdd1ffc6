"""Every recorded attempt with resource claims of kube-scheduler 1.36.2, by both walks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stowplan.conformance import attempt_cases
from tests.conformance.compare import attempt_differences, recorded

DATA = Path(__file__).parent / "data" / "dra"
FAMILIES = sorted(path.name.removesuffix(".jsonl.gz") for path in DATA.glob("*.jsonl.gz"))
WALKS = pytest.mark.parametrize(
    ("columns", "one_in"),
    [
        pytest.param(True, 4, id="columns-sample"),
        pytest.param(False, 20, id="scalar-sample"),
        pytest.param(True, 1, id="columns", marks=pytest.mark.soak),
        pytest.param(False, 1, id="scalar", marks=pytest.mark.soak),
    ],
)


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
