"""evaluate(): invalid lines get error answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stowplan.conformance.evaluate import evaluate

POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}


def answer(form: str, case: dict[str, Any]) -> dict[str, Any]:
    bad, good = evaluate([json.dumps({"id": "a", **case}), "{}"], form=form)
    assert (bad["id"], good["id"]) == ("a", "line 2")
    result: dict[str, Any] = bad["result"]
    return result


@pytest.mark.parametrize(
    ("form", "case", "message"),
    [
        ("sequence", {"steps": [{"op": "schedule", "template": "t"}]}, "step 0: unknown 't'"),
        ("sequence", {"steps": [{"op": "retry", "pod": "p"}]}, "step 0: unknown 'p'"),
        ("sequence", {"steps": [{"op": "relabelPod", "pod": "p"}]}, "step 0: pod 'p' is on no"),
        ("sequence", {"steps": [{"op": "none"}]}, "step 0: unknown op 'none'"),
        ("attempt", {"queue": [{"added": 1}]}, "missing required field `pod`"),
        ("attempt", {}, "missing required field `pod`"),
        (
            "attempt",
            {"pod": {**POD, "spec": {"schedulerName": "x"}}},
            "schedulerName: Invalid value: 'x': expected one of default-scheduler",
        ),
        ("order", {"queue": [], "profile": {"profilez": 1}}, "profilez"),
    ],
)
def test_what_is_wrong_is_the_answer(form: str, case: dict[str, Any], message: str) -> None:
    result = answer(form, case)
    assert (result["outcome"], result["reason"]) == ("error", "Invalid")
    assert result["message"].startswith("input: line 1: ")
    assert message in result["message"]


def test_a_queue_is_ordered_by_the_profile_of_its_case() -> None:
    waiting = [
        {"pod": {"metadata": {"name": name, "labels": labels}, "spec": {"priority": n}}, "added": n}
        for n, (name, labels) in enumerate([("a", {}), ("b", {"scv/priority": "2"}), ("c", {})])
    ]
    usual = {"profiles": [{"schedulerName": "default-scheduler"}]}
    lines = [
        json.dumps({"id": "yoda", "queue": waiting}),
        json.dumps({"id": "priority", "queue": waiting, "profile": usual}),
    ]
    for form in ("attempt", "order"):
        yoda, priority = (one["result"]["order"] for one in evaluate(lines, form=form))
        # Yoda: equal labels by priority.
        assert yoda == ["b", "c", "a"]
        assert priority == ["c", "b", "a"]
