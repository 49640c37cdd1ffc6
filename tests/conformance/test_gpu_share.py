"""Every recorded answer of the GPU-sharing simulator, to the bit, by both walks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stowplan.conformance.evaluate import encoded, evaluate
from stowplan.conformance.gpu_share import gpu_share_answers
from tests.conformance.compare import ONE_IN, WALKS, differences, recorded

DATA = Path(__file__).parent / "data" / "gpushare"
ATTEMPTS = ("bestfit", "dotprod", "fgd", "filter", "gpuclustering", "gpupacking", "random")
FAMILIES = (*ATTEMPTS, "desched", "frag", "typical")
AS_SETS = {"best", "cards_any_of", "chosen_cards_any_of", "node_any_of"}
BY_PRESENCE = {"reserve", "chosen_reserve"}
"""Fields that say how the original fails, in words of its recording."""


def comparable(tree: Any, key: str = "") -> Any:
    """The tree as JSON has it, with sets sorted and failures of the original by presence."""
    if isinstance(tree, dict):
        return {k: True if k in BY_PRESENCE else comparable(v, k) for k, v in tree.items()}
    if isinstance(tree, list):
        found = [comparable(one) for one in tree]
        return sorted(found) if key in AS_SETS else found
    return tree


def wrong_answers(family: str, *, columns: bool, one_in: int) -> dict[str, list[str]]:
    wrong = {}
    for line, want in recorded(DATA / f"{family}.jsonl.gz", one_in):
        case = gpu_share_answers.read_case(line)
        got = json.loads(encoded(gpu_share_answers.answer(case, columns=columns)))
        found = list(differences(comparable(want), comparable(got)))
        if found:
            wrong[case.id] = found[:3]
    return wrong


@WALKS
@pytest.mark.parametrize("family", FAMILIES)
def test_every_answer_is_the_originals(family: str, columns: bool, one_in: int) -> None:
    wrong = wrong_answers(family, columns=columns, one_in=one_in)
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


@pytest.mark.parametrize(
    ("columns", "one_in"),
    [
        pytest.param(True, ONE_IN, id="columns-sample"),
        pytest.param(False, 4 * ONE_IN, id="scalar-sample"),
        pytest.param(True, 1, id="columns", marks=pytest.mark.soak),
        pytest.param(False, 1, id="scalar", marks=pytest.mark.soak),
    ],
)
def test_every_fill_is_the_originals(columns: bool, one_in: int) -> None:
    wrong = wrong_answers("fill", columns=columns, one_in=one_in)
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


def test_all_families_are_here() -> None:
    names = sorted(path.name.removesuffix(".jsonl.gz") for path in DATA.glob("*.jsonl.gz"))
    assert names == sorted([*FAMILIES, "fill"])


def test_evaluate_answers_these_lines() -> None:
    line, want = next(recorded(DATA / "gpupacking.jsonl.gz"))
    (answer,) = evaluate([line], form="gpushare")
    assert answer["id"] == json.loads(line)["case"]["id"]
    assert answer["result"]["best"] == want["best"]


def test_a_case_without_a_pod_is_invalid() -> None:
    (answer,) = evaluate([b'{"id": "x", "family": "fgd"}'], form="gpushare")
    assert answer["result"]["reason"] == "Invalid"
    assert "a case needs a pod" in answer["result"]["message"]


def test_a_changed_score_is_noticed() -> None:
    want = {"nodes": [{"name": "a", "score": 50}], "best": ["a", "b"]}
    assert not list(differences(comparable(want), comparable({**want, "best": ["b", "a"]})))
    other = {**want, "nodes": [{"name": "a", "score": 51}]}
    assert list(differences(comparable(want), comparable(other)))
