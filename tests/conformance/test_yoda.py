"""Every recorded case of Yoda-Scheduler 2.x, by both walks with `compat: true`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stowplan.conformance import attempt_cases, queue_order_cases
from stowplan.conformance.evaluate import evaluate
from tests.conformance.compare import WALKS, differences, recorded

DATA = Path(__file__).parent / "data" / "yoda"
FAMILIES = ["collect", "crash", "filter", "huge", "labels", "readme", "score"]
DECISION = (
    "outcome",
    "nodeOrder",
    "feasible",
    "score",
    "best",
    "selected",
    "unschedulablePlugins",
)
UNSCORED = ("score", "best")
"""Fields that an attempt with a score error does not have."""


def decision(answer: dict[str, Any], want: dict[str, Any]) -> dict[str, Any]:
    """The compared part of an answer or recording: no texts, and for crashes of the original only
    the part up to Filter."""
    kept = {key: answer[key] for key in DECISION if key in answer}
    if want["outcome"] == "panic":
        kept = {key: kept[key] for key in ("nodeOrder", "feasible") if key in kept}
    elif want["outcome"] == "error":
        kept = {key: value for key, value in kept.items() if key not in UNSCORED}
    elif "score" not in want:
        # One node is left, so that it is not scored, which would crash the original.
        kept.pop("score", None)
    refused = answer.get("filter", {}).items()
    return {**kept, "filter": {node: refusal["plugin"] for node, refusal in refused}}


@WALKS
@pytest.mark.parametrize("family", FAMILIES)
def test_every_decision_is_the_originals(family: str, columns: bool, one_in: int) -> None:
    wrong = {}
    for line, want in recorded(DATA / f"{family}.jsonl.gz", one_in):
        case = attempt_cases.read_case(line)
        got = attempt_cases.answer(case, columns=columns)
        found = list(differences(decision(want, want), decision(got, want)))
        if found:
            wrong[case.id] = found[:3]
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


def test_all_families_are_here() -> None:
    names = sorted(path.name.removesuffix(".jsonl.gz") for path in DATA.glob("*.jsonl.gz"))
    assert names == sorted([*FAMILIES, "order"])


def out_of_order(groups: list[list[str]], names: list[str]) -> Iterator[str]:
    """Differences in the order of groups; the order within a group is free."""
    place = 0
    for group in groups:
        there = names[place : place + len(group)]
        if sorted(there) != sorted(group):
            yield f"want {group} at {place}, got {there}"
        place += len(group)
    if len(names) != place:
        yield f"want {place} names, got {len(names)}"


def test_the_queue_gives_pods_out_as_the_original_does() -> None:
    lines = dict(recorded(DATA / "order.jsonl.gz"))
    answers = list(evaluate(lines))
    assert len(answers) == 28
    for want, answer in zip(lines.values(), answers, strict=True):
        assert not list(out_of_order(want["groups"], answer["result"]["order"])), answer["id"]


def test_a_queue_in_another_order_is_noticed() -> None:
    line, want = next(recorded(DATA / "order.jsonl.gz"))
    names = queue_order_cases.answer(queue_order_cases.read_case(line))["order"]
    assert not list(out_of_order(want["groups"], names))
    assert list(out_of_order(want["groups"], names[1:]))
    assert list(out_of_order(want["groups"], names[::-1]))


def test_one_bad_case_ends_no_file() -> None:
    lines = [line for line, _ in recorded(DATA / "huge.jsonl.gz")]
    answers = list(evaluate(lines))
    assert len(answers) == len(lines) == 38
    failed = [one["result"] for one in answers if one["result"]["outcome"] == "error"]
    assert len(failed) == 3
    for result in failed:
        assert "plugin 'yoda' scores" in result["message"]
        assert result["feasible"]
