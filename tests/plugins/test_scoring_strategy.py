"""The three strategies: tables, and the original's arithmetic written out for one node."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.objects.encoding.json_codec import convert
from stowplan.plugins.resources.resource_allocation import (
    ResourceUtilization,
    ScoringFunction,
    score_resources,
)
from stowplan.plugins.resources.scoring_strategy import (
    ScoringStrategy,
    least_allocated,
    most_allocated,
)
from tests.plugins.clusters import is_found

Held = tuple[int, int, int]
"""weight, allocatable, taken of one resource."""

RISING = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
BENT = [
    {"utilization": 10, "score": 0},
    {"utilization": 43, "score": 10},
    {"utilization": 90, "score": 1},
]


def strategy(name: str, shape: list[dict[str, int]] | None = None) -> ScoringStrategy:
    tree: dict[str, Any] = {"type": name}
    if shape is not None:
        tree["requestedToCapacityRatio"] = {"shape": shape}
    return convert(tree, ScoringStrategy)


def of(rule: ScoringFunction, held: Sequence[Held]) -> int:
    """The score of a single row."""
    rows = [
        ResourceUtilization(weight, np.array([whole]), np.array([taken - 1]), 1)
        for weight, whole, taken in held
    ]
    return int(score_resources(rows, 1, rule)[0])


@pytest.mark.parametrize(
    ("held", "least", "most", "ratio"),
    [
        # Half of one, a quarter of the other.
        ([(1, 10, 5), (1, 8, 2)], 62, 37, 38),
        ([(3, 10, 5), (1, 8, 2)], 56, 43, 44),
        # Each percentage is truncated before the mean is.
        ([(1, 3, 1), (1, 3, 1)], 66, 33, 33),
        ([(1, 3, 2), (1, 7, 3)], 45, 54, 54),
        # Over-committed.
        ([(1, 10, 12)], 0, 100, 100),
        ([(1, 10, 12), (1, 10, 0)], 50, 50, 100),
        # What the node does not offer does not count.
        ([(9, 0, 3), (1, 10, 5)], 50, 50, 50),
        ([(1, 0, 3)], 0, 0, 0),
        ([], 0, 0, 0),
        # In the ratio, a resource that scores 0 does not count.
        ([(1, 10, 0), (1, 10, 5)], 75, 25, 50),
    ],
)
def test_scores(held: list[Held], least: int, most: int, ratio: int) -> None:
    rising = strategy("RequestedToCapacityRatio", RISING).rule()
    assert (of(least_allocated, held), of(most_allocated, held), of(rising, held)) == (
        least,
        most,
        ratio,
    )


# The original's arithmetic for one node, in whole numbers and one float division.


def plain_least(held: Sequence[Held]) -> int:
    parts = [(w, 0 if taken > a else (a - taken) * 100 // a) for w, a, taken in held if a]
    weights = sum(w for w, _ in parts)
    return sum(w * score for w, score in parts) // weights if weights else 0


def plain_most(held: Sequence[Held]) -> int:
    parts = [(w, min(taken, a) * 100 // a) for w, a, taken in held if a]
    weights = sum(w for w, _ in parts)
    return sum(w * score for w, score in parts) // weights if weights else 0


def plain_line(percent: int) -> int:
    points = [(p["utilization"], p["score"] * 10) for p in BENT]
    if percent <= points[0][0]:
        return points[0][1]
    for (u0, s0), (u1, s1) in pairwise(points):
        if percent <= u1:
            return s0 + int((s1 - s0) * (percent - u0) / (u1 - u0))
    return points[-1][1]


def plain_ratio(held: Sequence[Held]) -> int:
    scores = [(w, plain_line(100 if taken > a else taken * 100 // a)) for w, a, taken in held if a]
    weights = sum(w for w, score in scores if score > 0)
    mean = sum(w * score for w, score in scores) / weights if weights else 0
    return int(mean + 0.5)


Plain = Callable[[Sequence[Held]], int]

CHECKED: list[tuple[str, Plain, ScoringFunction]] = [
    ("least", plain_least, least_allocated),
    ("most", plain_most, most_allocated),
    ("ratio", plain_ratio, strategy("RequestedToCapacityRatio", BENT).rule()),
]
sizes = st.integers(0, 50) | st.integers(0, 2**44)
some_held = st.lists(st.tuples(st.integers(1, 100), sizes, sizes), max_size=4)


@pytest.mark.parametrize(("plain", "rule"), [c[1:] for c in CHECKED], ids=[c[0] for c in CHECKED])
@given(held=some_held)
def test_like_the_plain_arithmetic(plain: Plain, rule: ScoringFunction, held: list[Held]) -> None:
    assert of(rule, held) == plain(held)


def truncates_once(held: Sequence[Held]) -> int:
    """Wrong: LeastAllocated that truncates the mean only."""
    parts = [(w, max(a - taken, 0) * 100 / a) for w, a, taken in held if a]
    weights = sum(w for w, _ in parts)
    return int(sum(w * score for w, score in parts) / weights) if weights else 0


def forgets_the_clamp(held: Sequence[Held]) -> int:
    """Wrong: MostAllocated that scores over-committed resources above 100."""
    parts = [(w, taken * 100 // a) for w, a, taken in held if a]
    weights = sum(w for w, _ in parts)
    return sum(w * score for w, score in parts) // weights if weights else 0


def counts_zeros(held: Sequence[Held]) -> int:
    """Wrong: a ratio whose mean counts resources that score 0."""
    scores = [(w, plain_line(100 if taken > a else taken * 100 // a)) for w, a, taken in held if a]
    weights = sum(w for w, _ in scores)
    return int(sum(w * score for w, score in scores) / weights + 0.5) if weights else 0


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        (truncates_once, least_allocated),
        (forgets_the_clamp, most_allocated),
        (counts_zeros, CHECKED[2][2]),
    ],
)
def test_wrong_arithmetic_is_caught(wrong: Plain, rule: ScoringFunction) -> None:
    assert is_found(some_held, lambda held: of(rule, held) != wrong(held))


@pytest.mark.parametrize(
    ("tree", "problems"),
    [
        ({"type": "LeastAllocated"}, []),
        ({"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 0}]}, []),
        ({"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": RISING}}, []),
        (
            {"type": "leastAllocated"},
            [
                "s.type: Invalid value: 'leastAllocated': "
                "expected one of LeastAllocated, MostAllocated, "
                "RequestedToCapacityRatio (did you mean 'LeastAllocated'?)"
            ],
        ),
        (
            {"resources": [{"name": "cpu", "weight": 200}]},
            [
                "s.type: Invalid value: '': expected one of LeastAllocated, MostAllocated, "
                "RequestedToCapacityRatio",
                "s.resources[0].weight: Invalid value: 200: expected 1 to 100",
            ],
        ),
        (
            {"type": "RequestedToCapacityRatio"},
            [
                "s.requestedToCapacityRatio: Invalid value: nothing: "
                "expected a shape, since the type is "
                "RequestedToCapacityRatio"
            ],
        ),
        (
            {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {}},
            [
                "s.requestedToCapacityRatio.shape: Invalid value: no point: "
                "expected at least one point"
            ],
        ),
        (
            {"type": "MostAllocated", "requestedToCapacityRatio": {"shape": RISING}},
            [
                "s.requestedToCapacityRatio: Invalid value: a shape: "
                "expected nothing, unless the type is "
                "RequestedToCapacityRatio"
            ],
        ),
    ],
)
def test_problems(tree: dict[str, Any], problems: list[str]) -> None:
    assert list(map(str, convert(tree, ScoringStrategy).problems("s"))) == problems


def test_no_resources_means_cpu_and_memory() -> None:
    found = convert({"type": "MostAllocated", "resources": []}, ScoringStrategy)
    assert [(r.name, r.weight) for r in found.resources] == [("cpu", 1), ("memory", 1)]
