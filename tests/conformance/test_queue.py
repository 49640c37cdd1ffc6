"""Every recorded queue script of kube-scheduler 1.36.2: answers, hints and queue contents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stowplan.conformance.queue_cases import read_case
from stowplan.conformance.queue_scripts import answer
from tests.conformance.compare import FIRST, differences, recorded

DATA = Path(__file__).parent / "data" / "queue"
FAMILIES = sorted(path.name.removesuffix(".jsonl.gz") for path in DATA.glob("*.jsonl.gz"))

LISTS = ("active", "backoff", "errorBackoff", "unschedulable", "inFlight")
MAPS = ("gated", "pods", "popped", "nominated")

Answer = dict[str, Any]


def at_the_start() -> Answer:
    """Queue contents before the first step."""
    return {
        "t": 0,
        "cycle": 0,
        "moveCycle": -1,
        **{name: [] for name in LISTS},
        **{name: {} for name in MAPS},
    }


def follow(state: Answer, changes: Answer) -> None:
    """Apply the changes of a step to `state`."""
    for name, value in changes.items():
        if name not in ("pods", "popped"):
            state[name] = value
            continue
        for key, fields in value.items():
            if fields is None:
                state[name].pop(key, None)
            else:
                state[name][key] = state[name].get(key, {}) | fields


def script_differences(want: Answer, got: Answer) -> Iterator[str]:
    """Differences of an answer to a script, up to the first differing step."""
    theirs, ours = at_the_start(), at_the_start()
    for number, (wanted, found) in enumerate(zip(want["steps"], got["steps"], strict=True)):
        follow(theirs, wanted.get("state", {}))
        follow(ours, found.get("state", {}))
        here = [
            *differences(wanted.get("result"), found.get("result"), "result"),
            *differences(wanted.get("hints", []), found.get("hints", []), "hints"),
            *differences(theirs, ours, "state"),
        ]
        if here:
            yield from (f"step {number} {text}" for text in here)
            return


@FIRST
@pytest.mark.parametrize("family", FAMILIES)
def test_every_answer_is_the_originals(family: str, one_in: int) -> None:
    wrong = {}
    for line, want in recorded(DATA / f"{family}.jsonl.gz", one_in):
        case = read_case(line)
        found = list(script_differences(want, answer(case)))
        if found:
            wrong[case.id] = found[:3]
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


def test_all_families_are_here() -> None:
    assert len(FAMILIES) == 12


@pytest.mark.parametrize("what", ["result", "hints", "state"])
def test_a_changed_answer_is_noticed(what: str) -> None:
    for line, want in recorded(DATA / "mixed.jsonl.gz"):
        got = answer(read_case(line))
        step = next((one for one in reversed(got["steps"]) if one.get(what)), None)
        if step is not None:
            del step[what]
            assert list(script_differences(want, got))
            return
    pytest.fail(f"no script has {what}")
