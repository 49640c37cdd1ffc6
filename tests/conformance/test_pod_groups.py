"""Pod group scripts, recorded by running the complete scheduler of Kubernetes 1.36.2. One case in
16 in `make test`, all in `make soak`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stowplan.conformance.evaluate import evaluate
from stowplan.conformance.pod_groups import pod_group_cases, pod_group_scripts
from stowplan.scheduler.options import KUBE_SCHEDULER_1_36
from tests.conformance.compare import recorded

DATA = Path(__file__).parent / "data" / "podgroups"
FAMILIES = sorted(path.name.removesuffix(".jsonl.gz") for path in DATA.glob("*.jsonl.gz"))
ONE_IN = 16
# Texts in which the original names one of several pods or domains at random.
RANDOM = re.compile(
    r"((more than 1 domain found for pod group:|no topology domain found for pod|getting node for "
    r"pod) ).*"
)
KEPT_EMPTY = ("pending", "podGroupConditions", "claims", "nominatedNodeNames")
UNORDERED = ("plugins", "evicted", "events", "reservedFor")


def comparable(value: Any, key: str = "") -> Any:
    """A value without empty parts, with lists that have no order sorted."""
    if isinstance(value, dict):
        found = {name: comparable(one, name) for name, one in value.items() if one is not None}
        if key in KEPT_EMPTY:
            return found
        return {
            name: one
            for name, one in found.items()
            if one not in ({}, [], "") or name == "nominatedNodeNames"
        }
    if isinstance(value, list):
        items = [comparable(one) for one in value]
        return sorted(items) if key in UNORDERED else items
    return RANDOM.sub(r"\1*", value) if isinstance(value, str) else value


def with_any_claimant(want: dict[str, Any], got: dict[str, Any]) -> None:
    """Several members may claim a victim: the event names any of them."""
    for first, second in zip(want.get("attempts", []), got.get("attempts", []), strict=False):
        victims = {e.split()[2] for e in first.get("events", ()) if " related=*: " in e}
        events = []
        for event in second.get("events", ()):
            words = event.split()
            if words[1] == "Preempted" and words[2] in victims:
                event = (
                    f"Normal Preempted {words[2]} related=*: Preempted by pod * on node {words[-1]}"
                )
            events.append(event)
        if events:
            second["events"] = sorted(events)


def differences(expected: dict[str, Any], result: dict[str, Any]) -> Iterator[str]:
    """Where an answer is not the expected one."""
    want, got = comparable(expected), comparable(json.loads(json.dumps(result)))
    steps = zip(want["steps"], got.get("steps", []), strict=False)
    for number, (first, second) in enumerate(steps):
        if "panic" in first and "panic" in second:
            return
        with_any_claimant(first, second)
        if first != second:
            yield f"step {number}: want {first}, got {second}"
            return
    if {**want, "steps": 0} != {**got, "steps": 0} or len(want["steps"]) != len(got["steps"]):
        yield f"want {want}, got {got}"


def with_attempted_pods(result: Any) -> Any:
    """The answer with the pod of each attempt of one: of those by kernels only the result is
    seen."""
    for step in result["steps"]:
        for attempt in step.get("attempts", ()):
            if "group" not in attempt:
                attempt.setdefault("pods", list(attempt.get("bound") or attempt.get("failed", ())))
    return result


def check(family: str, one_in: int, engine: str) -> None:
    """Compare the cases of a family, or a sample of them."""
    cases = list(recorded(DATA / f"{family}.jsonl.gz", one_in))
    problems = []
    for line, expected in cases:
        case = pod_group_cases.read_case(line)
        result = with_attempted_pods(
            pod_group_scripts.answer(case, KUBE_SCHEDULER_1_36, engine=engine)
        )
        found = list(differences(expected, result))
        if found:
            problems.append(f"{case.id}: {found[0][:2000]}")
    assert cases
    assert not problems, "\n".join(problems[:3])


@pytest.mark.parametrize("family", FAMILIES)
def test_groups_are_scheduled_as_by_the_original(family: str) -> None:
    check(family, ONE_IN, "walk")


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_schedule_groups_as_the_original_does(family: str) -> None:
    check(family, 2 * ONE_IN, "auto")


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine", ["walk", "auto"])
def test_all_groups_are_scheduled_as_by_the_original(family: str, engine: str) -> None:
    check(family, 1, engine)


def test_a_difference_is_found() -> None:
    line, expected = next(recorded(DATA / "basic.jsonl.gz"))
    (answer,) = evaluate([line], form="podgroups", compat=KUBE_SCHEDULER_1_36)
    assert not list(differences(expected, answer["result"]))
    attempts = [one for step in answer["result"]["steps"] for one in step.get("attempts", ())]
    attempts[0]["pods"].reverse()
    assert list(differences(expected, answer["result"]))
