"""Recorded sequences of kube-scheduler 1.36.2, by new columns, kept columns, and scalar walk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stowplan.conformance import sequences
from stowplan.framework.runtime import registered_plugin
from tests.conformance.compare import SHARES, WALKS, differences, recorded

DATA = Path(__file__).parent / "data" / "sequences"
FAMILIES = sorted(path.name.removesuffix(".jsonl.gz") for path in DATA.glob("*.jsonl.gz"))
ALWAYS, NEVER = 1, 10**9


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    """Without `fresh`, nulls, and optional zeros of the final state."""
    steps = [{k: v for k, v in step.items() if k != "fresh"} for step in result["steps"]]
    final = {}
    for name, held in result["final"].items():
        scalar = {k: v for k, v in held.get("scalar", {}).items() if v}
        final[name] = {k: v for k, v in {**held, "scalar": scalar}.items() if v}
    rest = {k: v for k, v in result.items() if v is not None}
    return {**rest, "steps": steps, "final": final}


def wrong_in(family: str, *, columns: bool, one_in: int = 1) -> dict[str, list[str]]:
    """Case id -> first differences, for differing cases."""
    wrong = {}
    for line, want in recorded(DATA / f"{family}.jsonl.gz", one_in):
        case = sequences.read_case(line)
        got = sequences.answer(case, columns=columns)
        wanted, given = comparable(want), comparable(got)
        pairs = enumerate(zip(wanted["steps"], given["steps"], strict=True))
        found = [f"step {i}{d}" for i, (w, g) in pairs for d in differences(w, g)]
        found += differences(
            {k: v for k, v in wanted.items() if k != "steps"},
            {k: v for k, v in given.items() if k != "steps"},
        )
        if found:
            wrong[case.id] = found[:3]
    return wrong


@WALKS
@pytest.mark.parametrize("family", FAMILIES)
def test_every_step_is_the_originals(
    family: str, columns: bool, one_in: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered_plugin, "CACHED_NODES_MIN", NEVER)
    wrong = wrong_in(family, columns=columns, one_in=one_in)
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


@SHARES
@pytest.mark.parametrize("family", FAMILIES)
def test_columns_that_are_kept_give_every_step_too(
    family: str, one_in: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered_plugin, "CACHED_NODES_MIN", ALWAYS)
    wrong = wrong_in(family, columns=True, one_in=one_in)
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


def test_all_families_are_here() -> None:
    assert len(FAMILIES) == 8


def test_a_changed_answer_is_noticed() -> None:
    line, want = next(recorded(DATA / "spread.jsonl.gz"))
    got = comparable(sequences.answer(sequences.read_case(line)))
    got["steps"][0]["total"] += 1
    assert list(differences(comparable(want)["steps"][0], got["steps"][0]))
