"""Every recorded session of kube-batch v0.5. Its results are partly random (map iteration, choice
among equal nodes); facts that varied between its runs are compared with the recorded outcomes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stowplan.config.session_configuration import KUBE_BATCH_0_5
from stowplan.conformance import session_evaluation
from tests.conformance.compare import FIRST, recorded

TESTS = Path(__file__).parent.parent
DATA = TESTS / "conformance" / "data" / "session"
FAMILIES = sorted(path.name.removesuffix(".jsonl.gz") for path in DATA.glob("*.jsonl.gz"))
DECIDED = ("binds", "evicts", "pipelined", "reserved")


def is_same(want: Any, got: Any) -> bool:
    """Equal up to rounding of amounts and shares; panic texts are not compared."""
    if isinstance(want, bool) or isinstance(got, bool):
        return want is got
    if isinstance(want, int | float) and isinstance(got, int | float):
        return math.isclose(want, got, rel_tol=1e-6, abs_tol=1e-3)
    if isinstance(want, dict) and isinstance(got, dict):
        if "panic" in want:
            return "panic" in got
        return want.keys() == got.keys() and all(is_same(v, got[k]) for k, v in want.items())
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(map(is_same, want, got))
    return bool(want == got)


def fixed_differences(want: Any, got: Any, path: str) -> Iterator[str]:
    """Differences of facts that did not vary, among facts of which others did."""
    for key, value in want.items():
        mine = got.get(key) if isinstance(got, dict) else None
        if isinstance(value, dict) and isinstance(mine, dict):
            yield from fixed_differences(value, mine, f"{path}.{key}")
        elif not is_same(value, mine):
            yield f"{path}.{key}: want {value!r}, got {mine!r}"


def session_differences(number: int, want: dict[str, Any], got: dict[str, Any]) -> Iterator[str]:
    """Differences of the facts of one session."""
    for kind, value in want.get("fixed", {}).items():
        mine = got.get(kind, type(value)())
        if kind in want.get("varies", {}) and isinstance(value, dict):
            yield from fixed_differences(value, mine, f"session {number} {kind}")
        elif not is_same(value, mine):
            yield f"session {number} {kind}: want {value!r}, got {mine!r}"


def outcome(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Facts that identify an outcome; eviction reasons do not."""
    return [
        {k: sorted(s[k]) if k == "evicts" else s[k] for k in DECIDED if s.get(k)} for s in found
    ]


def differences(want: dict[str, Any], got: dict[str, Any]) -> Iterator[str]:
    """Differences of an answer from the recording."""
    if "confError" in want:
        if "confError" not in got:
            yield "the configuration was not refused"
        return
    if "units" in want:
        if not is_same(want["units"], got["units"]):
            yield "units differ"
        return
    if not is_same(want["conf"], got["conf"]):
        yield f"conf: want {want['conf']!r}, got {got['conf']!r}"
    if len(want["sessions"]) != len(got["sessions"]):
        yield f"want {len(want['sessions'])} sessions, got {len(got['sessions'])}"
        return
    for number, (w, g) in enumerate(zip(want["sessions"], got["sessions"], strict=True), 1):
        yield from session_differences(number, w, g)
    seen = [outcome(o["sessions"]) for o in want.get("outcomes", ())]
    if seen and not any(is_same(o, outcome(got["sessions"])) for o in seen):
        yield f"none of the {len(seen)} outcomes: {outcome(got['sessions'])!r}"


def wrong_in(family: str, compat: str = KUBE_BATCH_0_5, one_in: int = 1) -> dict[str, list[str]]:
    """Case id -> first differences, for differing cases without a crash."""
    wrong = {}
    for line, want in recorded(DATA / f"{family}.jsonl.gz", one_in):
        case = session_evaluation.read_case(line)
        got = session_evaluation.answer(case, compat)
        if want.get("panics"):
            if "panic" not in got:
                wrong[case.id] = ["the original ends here, and this does not"]
            continue
        found = list(differences(want, got))
        if found:
            wrong[case.id] = found[:3]
    return wrong


@FIRST
@pytest.mark.parametrize("family", FAMILIES)
def test_every_session_is_the_originals(family: str, one_in: int) -> None:
    wrong = wrong_in(family, one_in=one_in)
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


def test_all_families_are_here() -> None:
    assert len(FAMILIES) == 19


def test_a_changed_answer_is_noticed() -> None:
    line, want = next(recorded(DATA / "reclaim1.jsonl.gz"))
    got = session_evaluation.answer(session_evaluation.read_case(line), KUBE_BATCH_0_5)
    assert not list(differences(want, got))
    got["sessions"][0]["jobs"].popitem()
    assert list(differences(want, got))


def test_sessions_of_today_answer_otherwise() -> None:
    assert len(wrong_in("reclaim1", "")) > 40
