"""NumPy kernels: they place every pod where the walk does, by the same score, and so where compiled
kernels place it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.columns.engine import numpy_kernels
from stowplan.cycle import decider
from stowplan.cycle.engine import Engine
from stowplan.testing import node, pod, spread
from stowplan.testing.builders import ZONE
from tests.cycle.engine_and_walk import Both, copies
from tests.property import engine_objects as objects
from tests.property.engine_kernels import changed_numpy_kernels, plain
from tests.property.engine_profiles import PROFILES
from tests.property.engine_random_walk import walk_together
from tests.property.engine_twins import TO_PODS, Course, Twins
from tests.soak import examples

SEEDS = st.integers(0, 2**32 - 1)
STEPS = st.integers(3, 24)

COURSES: dict[str, Course] = {
    "anything": Course(),
    "ties are random": Course(random_ties=True, foreign=2),
    "every pod is different": Course(fresh=True, random_ties=True),
    "no node, or one or two": Course(sizes=(0, 1, 2), random_ties=True),
    "many nodes": Course(sizes=(60, 120), random_ties=True),
    "nodes": Course(wishes=(objects.prefers_nodes, objects.tolerates, objects.selects_nodes)),
    "images": Course(wishes=(objects.has_image, objects.prefers_nodes)),
    "hard spread": Course(wishes=(objects.spreads, objects.tolerates)),
    "soft spread": Course(wishes=(objects.spreads_softly, objects.is_owned)),
    "apart": Course(wishes=(objects.is_apart, objects.prefers_apart)),
    "near": Course(wishes=(objects.is_near, objects.prefers_near)),
    "preferences bounded": Course(
        wishes=(objects.prefers_nodes, objects.tolerates, objects.is_near, objects.spreads)
    ),
}


def run_course(course: Course, seed: int, n_steps: int, kernels: Any = numpy_kernels) -> Twins:
    twins = Twins(seed, course, kernels)
    twins.walk(n_steps)
    return twins


@pytest.mark.parametrize("name", COURSES)
def test_every_course_chooses_the_nodes_of_the_walk(name: str) -> None:
    @settings(max_examples=examples(6))
    @given(SEEDS, STEPS)
    def look(seed: int, n_steps: int) -> None:
        run_course(COURSES[name], seed, n_steps)

    look()


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_chooses_the_nodes_of_the_walk(name: str) -> None:
    @settings(max_examples=examples(5))
    @given(SEEDS, STEPS, st.booleans())
    def look(seed: int, n_steps: int, random_ties: bool) -> None:
        run_course(Course(profile=PROFILES[name], random_ties=random_ties), seed, n_steps)

    look()


def test_most_pods_are_placed_by_the_kernels() -> None:
    twins = run_course(Course(sizes=(12, 30), foreign=4), 1, 60)
    assert twins.counted["placed"] > 120


@pytest.mark.parametrize("seed", range(4))
def test_schedulers_with_and_without_them_have_the_same_effects(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decider, "load_kernels", lambda: numpy_kernels)
    pair = walk_together(seed, 40, numpy_kernels)
    assert pair.engine.kernels is numpy_kernels
    assert pair.n_fast > 0


def two_zones(first: Any, second: Any) -> list[str]:
    """Two runs of pods on four nodes, each with its own kernels."""
    nodes = [node(f"n{i}", zone="ab"[i % 2], cpu="4") for i in range(4)]
    both = Both(nodes, kernels=first)
    labels = {"app": "web"}
    web = pod("web", cpu="500m", labels=labels, spread=[spread("app=web", ZONE, hard=False)])
    found = both.run(copies(web, 7))
    both.engine.use(second)
    return found + both.run(copies(replace(web, metadata=replace(web.metadata, name="more")), 9))


def test_kernels_may_be_exchanged_between_runs() -> None:
    """As it happens when the compiled ones have been loaded."""
    compiled = plain()
    wanted = two_zones(compiled, compiled)
    assert two_zones(numpy_kernels, compiled) == wanted
    assert two_zones(compiled, numpy_kernels) == wanted


def test_control_points_kept_by_other_kernels_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(engine: Engine, kernels: Any) -> None:
        engine.kernels = kernels

    monkeypatch.setattr(Engine, "use", keep)
    with pytest.raises(AssertionError):
        two_zones(numpy_kernels, plain())


# Wrong variants.

NARROW = Course(happenings=TO_PODS, foreign=3, sizes=(5, 8))

WRONG: dict[str, tuple[Course, tuple[str, str]]] = {
    "the last changed row is not evaluated again": (
        replace(NARROW, wishes=()),
        ("rows = self._grouping.log[seen:n_log]", "rows = self._grouping.log[seen : n_log - 1]"),
    ),
    "a pod slot too many is given out": (
        replace(NARROW, wishes=()),
        ("amounts.pod_count < amounts", "amounts.pod_count <= amounts"),
    ),
    "ties go to the last row": (
        replace(NARROW, wishes=()),
        ("order.argmin()", "order.argmax()"),
    ),
    "the skew allowed is one less": (
        replace(NARROW, wishes=(objects.spreads,)),
        ("(skew <= cells[at.SKEW_MAX])", "(skew < cells[at.SKEW_MAX])"),
    ),
    "the first of several peers may go anywhere": (
        replace(NARROW, wishes=(objects.is_near,)),
        ("n_peers == 0 and self._one.matches_itself", "n_peers == 0"),
    ),
    "the highest raw score is taken of closed domains too": (
        replace(NARROW, foreign=1, wishes=(objects.prefers_nodes, objects.is_near)),
        ("raw.max(where=possible, initial=0)", "raw.max(initial=0)"),
    ),
    "groups without the label do not count as a domain": (
        replace(NARROW, wishes=(objects.spreads_softly, objects.is_owned)),
        ("self._rules.logs[n_distinct]", "self._rules.logs[n_distinct - 1]"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_numpy_kernels_are_noticed(name: str) -> None:
    course, change = WRONG[name]
    wrong = changed_numpy_kernels(change)
    for seed in range(60):
        try:
            run_course(course, seed, 12, wrong)
        except AssertionError:
            return
    pytest.fail("no seed showed the mistake")


def test_quotients_are_truncated_toward_zero() -> None:
    assert numpy_kernels.quotient(np.array([-7, 7]), 2).tolist() == [-3, 3]
    wrong = changed_numpy_kernels(("if whole.size and whole.min() < 0:", "if False:"))
    assert wrong.quotient(np.array([-7, 7]), 2).tolist() == [-4, 3]
