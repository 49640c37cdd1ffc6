"""Classes with affinity terms that count the same share the counts; each pod goes where the walk
has it go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.cycle.engine.class_arrays import ClassArrays
from tests.property import engine_objects as objects
from tests.property.engine_twins import Course
from tests.property.test_engine_property import SEEDS, STEPS, same_nodes
from tests.soak import examples

compiled = pytest.importorskip("stowplan.columns.engine.kernels")

COURSE = Course(
    sizes=(8, 20), foreign=3, wishes=(objects.is_apart, objects.prefers_apart, objects.prefers_near)
)
"""Nearly all pods have terms, most of which others match."""


@settings(max_examples=examples(30))
@given(SEEDS, STEPS, st.booleans())
def test_pods_go_where_the_walk_has_them_go(seed: int, n_steps: int, random_ties: bool) -> None:
    same_nodes(replace(COURSE, random_ties=random_ties), compiled, seed, n_steps)


def test_some_terms_share_their_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the property is one of shared counts."""
    right, n_shared = ClassArrays.counting, 0

    def counting(self: ClassArrays, terms: Any) -> list[int]:
        nonlocal n_shared
        found = right(self, terms)
        n_shared += len(terms) - len(found)
        return found

    monkeypatch.setattr(ClassArrays, "counting", counting)
    check_seeds(20)
    assert n_shared > 10


def check_seeds(n_seeds: int) -> None:
    for seed in range(n_seeds):
        same_nodes(COURSE, compiled, seed, 24)


Counted = tuple[Any, str, Any]


def by_kind(same: Counted) -> Any:
    """All terms of one kind and key."""
    return same[:2]


def without_terms_of_others(same: Counted) -> Any:
    """Terms with the same preferences, whatever terms of other pods match the pod."""
    kind, key, counted = same
    return (kind, key, counted[:2]) if isinstance(counted, tuple) else same


def without_preferences(same: Counted) -> Any:
    """Terms that the same terms of other pods match, whatever the pod prefers."""
    kind, key, counted = same
    return (kind, key, counted[2:]) if isinstance(counted, tuple) else same


@pytest.mark.parametrize("wrong", [by_kind, without_terms_of_others, without_preferences])
def test_terms_that_share_other_counts_are_caught(
    wrong: Callable[[Counted], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = ClassArrays.add_term

    def add_term(self: ClassArrays, n_values: int, same_counts: Any = None) -> int:
        return right(self, n_values, None if same_counts is None else wrong(same_counts))

    monkeypatch.setattr(ClassArrays, "add_term", add_term)
    with pytest.raises(AssertionError):
        check_seeds(100)
