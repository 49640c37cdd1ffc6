"""Kueue's admission, recorded by running its own scheduler, queues and cache. One case in 24 in
`make test`, all in `make soak`."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stowplan.conformance.evaluate import evaluate
from stowplan.conformance.queue_models.kueue_cases import KUEUE
from tests.conformance.compare import recorded
from tests.conformance.test_queue_models import missing

DATA = Path(__file__).parent / "data" / "queues"
FAMILIES = sorted(path.name.removesuffix(".jsonl.gz") for path in DATA.glob("kueue-*.jsonl.gz"))
ONE_IN = 24
EFFECTS = ("admitted", "preempted", "evicted")
Case = tuple[bytes, dict[str, Any]]


def has_effect(cycle: dict[str, Any]) -> bool:
    return any(cycle.get(key) for key in EFFECTS)


def seen(step: dict[str, Any]) -> list[dict[str, Any]]:
    """Cycles with an effect, as outcomes are compared: domains have no order."""
    found = []
    for cycle in filter(has_effect, step["cycles"]):
        one = copy.deepcopy({key: cycle.get(key) or {} for key in EFFECTS})
        for admission in one["admitted"].values():
            for pod_set in admission["podSets"]:
                pod_set.get("topology", {}).get("domains", []).sort(key=lambda d: d["values"])
        found.append(one)
    return found


def is_met(want: list[dict[str, Any]], got: list[dict[str, Any]]) -> bool:
    """Equal; the preemptor counts where it is recorded."""
    if len(want) != len(got):
        return False
    for first, second in zip(want, got, strict=True):
        victims = {
            key: one if "by" in first["preempted"].get(key, {}) else {"reason": one["reason"]}
            for key, one in second["preempted"].items()
        }
        if first != {**second, "preempted": victims}:
            return False
    return True


def with_lists(step: dict[str, Any]) -> dict[str, Any]:
    """A step with heads and order up to its last cycle with an effect."""
    cycles = step["cycles"]
    last = max((i + 1 for i, one in enumerate(cycles) if has_effect(one)), default=0)
    heads = [sorted(one["heads"]) for one in cycles[:last]]
    return {**step, "heads": heads, "order": [one["order"] for one in cycles[:last]]}


def differences(expected: dict[str, Any], result: dict[str, Any]) -> Iterator[str]:
    """Differences of an answer from what is expected."""
    steps = result.get("steps", [])
    got = [seen(step) for step in steps]
    wants = [[seen(step) for step in one["steps"]] for one in expected["outcomes"]]
    if not any(len(want) == len(got) and all(map(is_met, want, got)) for want in wants):
        yield f"none of {len(wants)} outcomes: {got}"
    facts = {**result, "steps": [with_lists(step) for step in steps]}
    yield from missing(expected.get("facts", {}), facts, "facts")


def check(family: str, one_in: int) -> None:
    """Compare the cases of a family, or a sample of them."""
    compare(list(recorded(DATA / f"{family}.jsonl.gz", one_in)))


def compare(cases: list[Case]) -> None:
    answers = evaluate([line for line, _ in cases], form="queues", compat=KUEUE)
    problems = []
    for (_, expected), answer in zip(cases, answers, strict=True):
        found = list(differences(expected, answer["result"]))
        if found:
            problems.append(f"{answer['id']}: {found[0]}")
    assert cases
    assert not problems, "\n".join(problems[:5])


@pytest.mark.parametrize("family", FAMILIES)
def test_admission_is_that_of_kueue(family: str) -> None:
    check(family, ONE_IN)


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
def test_all_admission_is_that_of_kueue(family: str) -> None:
    check(family, 1)


def test_second_passes_are_those_of_kueue() -> None:
    """Places after a ProvisioningRequest, and in place of those on failed nodes."""
    cases = recorded(DATA / "kueue-topology.jsonl.gz")
    compare([(line, expected) for line, expected in cases if b"second pass" in line])


def test_cases_that_never_settle_are_exact() -> None:
    cases = [
        (line, expected)
        for line, expected in recorded(DATA / "kueue-fairshare.jsonl.gz")
        if expected.get("endless")
    ][:2]
    assert cases
    answers = evaluate([line for line, _ in cases], form="queues", compat=KUEUE)
    for (_, expected), answer in zip(cases, answers, strict=True):
        assert not list(differences(expected, answer["result"]))


def test_a_flavor_that_is_short_does_not_fit_unless_asked_for() -> None:
    """`made-flavors-25`: Kueue tries a workload as fitting and skips it in every cycle."""
    (line,) = [
        line
        for line, _ in recorded(DATA / "kueue-flavors.jsonl.gz")
        if b'"made-flavors-25"' in line
    ]
    (exact,) = evaluate([line], form="queues", compat=KUEUE)
    (fixed,) = evaluate([line], form="queues")
    effects = [
        sum(map(has_effect, answer["result"]["steps"][0]["cycles"])) for answer in (exact, fixed)
    ]
    assert effects[0] < effects[1]


def test_a_difference_is_found() -> None:
    line, expected = next(recorded(DATA / "kueue-cohort.jsonl.gz"))
    (answer,) = evaluate([line], form="queues", compat=KUEUE)
    assert not list(differences(expected, answer["result"]))
    step = answer["result"]["steps"][0]
    step["pending"]["ns/another"] = {"queue": "active"}
    for queue in step["clusterQueues"].values():
        queue["available"] = dict.fromkeys(queue["available"], -1)
    assert list(differences(expected, answer["result"]))
