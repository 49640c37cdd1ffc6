"""The engine, the NumPy walk and the scalar walk choose the same node, whatever happens.

Each property comes with realistic wrong variants, which it is shown to catch. The mistakes are
planted in the kernels as plain Python, which is the same text without its compiler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.benchmarks.benchmark_objects import BenchmarkClient
from stowplan.benchmarks.benchmark_workload import BenchmarkCase, WorkloadSizes
from stowplan.benchmarks.cases.stowplan_cases import STOWPLAN_CASES
from stowplan.columns.pods.podterms import ExistingPodTerms
from stowplan.cycle.engine import class_arrays, classes, engine, layouts
from stowplan.cycle.engine.classes import PodClassIndex
from stowplan.cycle.engine.engine import Engine
from stowplan.cycle.engine.plans import Planner
from stowplan.queue.scheduling_queue import SchedulingQueue
from tests.property import engine_objects as objects
from tests.property.engine_kernels import plain
from tests.property.engine_profiles import PROFILES
from tests.property.engine_random_walk import Pair, play_together, walk_together
from tests.property.engine_twins import (
    TO_PODS,
    Course,
    Twins,
    a_controller_changes,
    a_namespace_changes,
)
from tests.scenarios import script
from tests.scheduler import random_walk
from tests.soak import examples, factor, seeds

compiled = pytest.importorskip("stowplan.columns.engine.kernels")

SEEDS = st.integers(0, 2**32 - 1)
STEPS = st.integers(3, 24)
LONG = 2000 if factor() > 1 else 60
"""Steps of the journeys that are long."""

COURSES: dict[str, Course] = {
    "ties are drawn": Course(random_ties=True),
    "every pod is different": Course(fresh=True, random_ties=True),
    "nothing happens but to pods": Course(happenings=TO_PODS, foreign=4),
    "hardly anything is a run": Course(foreign=9),
    "hardly anything else happens": Course(foreign=1, random_ties=True),
    "no node, or one or two": Course(sizes=(0, 1, 2), random_ties=True),
    "many nodes": Course(sizes=(60, 120), random_ties=True),
    "basic": Course(wishes=()),
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


def same_nodes(course: Course, kernels: Any, seed: int, n_steps: int) -> Counter[str]:
    """Each pod goes where the walks would have it, or nowhere in the same words."""
    twins = Twins(seed, course, kernels)
    twins.walk(n_steps)
    return twins.counted


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_chooses_the_same_nodes(name: str) -> None:
    @settings(max_examples=examples(8))
    @given(SEEDS, STEPS, st.booleans())
    def look(seed: int, n_steps: int, random_ties: bool) -> None:
        same_nodes(Course(profile=PROFILES[name], random_ties=random_ties), compiled, seed, n_steps)

    look()


@pytest.mark.parametrize("name", COURSES)
def test_every_course_chooses_the_same_nodes(name: str) -> None:
    @settings(max_examples=examples(9))
    @given(SEEDS, STEPS)
    def look(seed: int, n_steps: int) -> None:
        same_nodes(COURSES[name], compiled, seed, n_steps)

    look()


@settings(max_examples=examples(20))
@given(SEEDS, STEPS)
def test_kernels_stay_within_their_arrays(seed: int, n_steps: int) -> None:
    """Compiled they are not checked; what is out of bounds shows when they are plain."""
    same_nodes(Course(random_ties=seed % 2 == 0), plain(), seed, n_steps)


@pytest.mark.parametrize("seed", range(4))
def test_long_journeys_choose_the_same_nodes(seed: int) -> None:
    """And many pods are placed by the engine, so that it is the engine that is looked at."""
    course = Course(random_ties=seed % 2 == 1, sizes=(12, 30), foreign=4)
    counted = same_nodes(course, compiled, seed, LONG)
    assert counted["placed"] > 2 * LONG


TIGHT: dict[str, tuple[Any, str, int]] = {
    "classes": (engine, "CLASSES_MAX", 4),
    "specs": (classes, "SPECS_MAX", 3),
    "room for classes": (class_arrays, "CLASSES_FEW", 1),
    "trees": (class_arrays, "TREES_BYTES_MAX", 3000),
    "log": (class_arrays, "LOG_MIN", 8),
}
"""What is forgotten when there is too much of it: where, and how little is too much here."""


@pytest.mark.parametrize("name", TIGHT)
def test_what_is_forgotten_is_found_anew(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*TIGHT[name])

    @settings(max_examples=examples(6))
    @given(SEEDS, STEPS)
    def look(seed: int, n_steps: int) -> None:
        course = Course(
            fresh=seed % 3 == 0, happenings=TO_PODS if seed % 2 else (), sizes=(3, 8, 12)
        )
        same_nodes(course, compiled, seed, n_steps)

    look()


ROWS_AS_DOMAINS = Course(
    sizes=(4, 12, 20),
    foreign=3,
    wishes=(objects.spreads, objects.spreads_softly, objects.prefers_apart, objects.prefers_near),
)
SMALL_BLOCKS = ((layouts, "BLOCK_ROWS", 4), (class_arrays, "CELLS_MAX", 2))
"""Blocks of few rows, some of them with more kinds of rows than there is space for."""


@pytest.mark.parametrize("random_ties", [False, True], ids=["first", "drawn"])
def test_rows_that_are_domains_are_rated_by_blocks(
    random_ties: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in SMALL_BLOCKS:
        monkeypatch.setattr(*one)

    @settings(max_examples=examples(15))
    @given(SEEDS, STEPS)
    def look(seed: int, n_steps: int) -> None:
        same_nodes(replace(ROWS_AS_DOMAINS, random_ties=random_ties), compiled, seed, n_steps)

    look()


# Whole machines.


@settings(max_examples=examples(12))
@given(SEEDS, st.integers(10, 60))
def test_two_machines_answer_the_same_to_the_byte(seed: int, n_steps: int) -> None:
    walk_together(seed, n_steps, compiled)


def walk_with_plugins(seed: int, n_steps: int) -> None:
    """A walk with plugins that wait, refuse, break their contract and call pods; on each, what
    one pod's attempt leads to may change what the next pod is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            random_walk, "made", lambda **given: Pair(compiled, lambda: script.made(**given))
        )
        walk = random_walk.RandomWalk(np.random.default_rng(seed))
        for _ in range(n_steps):
            walk.step()


def check_walks_with_plugins(n_seeds: int) -> None:
    for seed in range(n_seeds):
        walk_with_plugins(seed, 60)


@settings(max_examples=examples(12))
@given(SEEDS, st.integers(20, 80))
def test_two_machines_with_label_plugins_answer_the_same(seed: int, n_steps: int) -> None:
    walk_with_plugins(seed, n_steps)


def test_runs_that_do_not_end_where_the_queue_is_stirred_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: what was popped with a pod is tried next, though the attempt has let others go."""
    monkeypatch.setattr(SchedulingQueue, "revision", (0, 0, 0))
    with pytest.raises(AssertionError):
        check_walks_with_plugins(60)


SIZES = {
    "preemption-pdb": WorkloadSizes(8, 6),
    "preemption": WorkloadSizes(8, 6),
    "events": WorkloadSizes(8, 60),
    "memory": WorkloadSizes(8, 60),
}


@pytest.mark.parametrize("shape", STOWPLAN_CASES, ids=lambda shape: shape.name)
@pytest.mark.parametrize("random_ties", [False, True], ids=["first", "drawn"])
def test_every_shape_of_the_bench_is_answered_the_same(
    shape: BenchmarkCase, random_ties: bool
) -> None:
    sizes = SIZES.get(shape.name, WorkloadSizes(nodes=40, pods=200, existing=20))
    workload = shape.make(BenchmarkClient(), sizes)
    pair = play_together(workload, 7 if random_ties else None, compiled)
    if shape.name not in ("unfit", *SIZES):
        assert pair.n_fast == 200
    if shape.name in ("unfit", "preemption", "preemption-pdb"):
        assert pair.n_handled >= sizes.pods


# Wrong variants of the kernels.

NARROW = Course(happenings=TO_PODS, foreign=3, sizes=(5, 8))

Wrong = tuple[Course, tuple[str, str]]

WRONG_KERNELS: dict[str, Wrong] = {
    "a placement is not noted in the log": (
        replace(NARROW, wishes=()),
        ("        log[n_log] = row\n        n_log += 1\n", "        n_log += 0\n"),
    ),
    "the skew allowed is one less": (
        replace(NARROW, wishes=(objects.spreads,)),
        ("if skew > terms[t, at.SKEW_MAX]:", "if skew >= terms[t, at.SKEW_MAX]:"),
    ),
    "the highest stays when its last row fills up": (
        replace(NARROW, wishes=(objects.prefers_nodes, objects.tolerates)),
        ("if classes[c, at.N_HIGHEST + k] == 0 and value != 0:", "if False:"),
    ),
    "the highest is taken of closed domains too": (
        replace(NARROW, foreign=1, wishes=(objects.prefers_nodes, objects.is_near)),
        ("\n    if is_bounded(c, classes, terms):\n", "\n    if False:\n"),
    ),
    "a pod slot too many is given out": (
        replace(NARROW, wishes=()),
        (
            "if pod_count[row] + 1 > allocatable[classes[c, at.PODS], row]:",
            "if pod_count[row] > allocatable[classes[c, at.PODS], row]:",
        ),
    ),
    "a class asked for once takes a pod slot too many": (
        replace(NARROW, wishes=()),
        (
            "(pod_count[row] < allocatable[slots, row])",
            "(pod_count[row] <= allocatable[slots, row])",
        ),
    ),
    "of a class asked for once ties go to the last row": (
        replace(NARROW, wishes=()),
        (
            "if leaves[row] == best:\n            its =",
            "if leaves[row] == best:\n            chosen = np.int64(NOWHERE)\n            its =",
        ),
    ),
    "the first of several peers may go anywhere": (
        replace(NARROW, wishes=(objects.is_near,)),
        ("return n_peers == 0 and classes[c, at.MATCHES_ITSELF] == 1", "return n_peers == 0"),
    ),
    "a domain that is missing counts as none": (
        replace(NARROW, wishes=(objects.spreads_softly, objects.is_owned)),
        ("weights[t - first] = logs[n_distinct]", "weights[t - first] = logs[n_distinct - 1]"),
    ),
    "lots of the second best count": (
        replace(NARROW, wishes=(), random_ties=True),
        ("if chosen < 0 or its < smallest:\n            chosen, smallest = first + i, its",
         "if True:\n            chosen, smallest = first + i, its"),
    ),
}  # fmt: skip


KNOWN = {
    "of a class asked for once ties go to the last row": (38,),
    "terms_of_others_come_unnoticed": (53,),
    "a crowded block is left out": (6,),
    "of a cell only the first row takes part in a draw": (6,),
    "terms_are_forgotten_with_classes": (5,),
    "labels_of_nodes_are_not_followed": (21,),
    "a_namespace_is_not_followed": (7,),
}
"""Seeds that show a mistake that few seeds show: they are tried first."""


def assert_noticed(name: str, course: Course, kernels: Any, n_seeds: int = 60) -> None:
    """Assert that one of the seeds shows a mistake."""
    for seed in seeds(n_seeds, *KNOWN.get(name, ())):
        try:
            same_nodes(course, kernels, seed, 12)
        except AssertionError:
            return
    pytest.fail("no seed showed the mistake")


@pytest.mark.parametrize("name", WRONG_KERNELS)
def test_wrong_kernels_are_noticed(name: str) -> None:
    course, change = WRONG_KERNELS[name]
    assert_noticed(name, course, plain(change))


WRONG_BLOCKS: dict[str, Wrong] = {
    "a placement leaves its block as it was": (
        ROWS_AS_DOMAINS,
        ("places[layout, at.BLOCK, row], 0] = at.STALE", "0, 0] = cells[tree, 0, 0]"),
    ),
    "a cell counts for one domain": (
        replace(ROWS_AS_DOMAINS, wishes=(objects.spreads_softly,)),
        ("cells[tree, block, 1 + n_max + cell] += 1\n", "cells[tree, block, 0] = at.STALE\n"),
    ),
    "the first row of a cell is its best": (
        ROWS_AS_DOMAINS,
        ("       cells[tree, block, 1 + cell] = group\n    cells[", "       pass\n    cells["),
    ),
    "rows of other counts share a cell": (
        ROWS_AS_DOMAINS,
        ("if count != counts[start + values[layout, inner, other]]:", "if False:"),
    ),
    "a crowded block is left out": (
        ROWS_AS_DOMAINS,
        ("            for group in range(first, end):\n", "            for group in range(0):\n"),
    ),
    "the lowest count stays the lowest": (
        replace(ROWS_AS_DOMAINS, wishes=(objects.spreads,)),
        ("max(terms[t, at.N_LOWEST] - 1, 0)", "terms[t, at.N_LOWEST]"),
    ),
    "of a cell only the first row takes part in a draw": (
        replace(ROWS_AS_DOMAINS, random_ties=True),
        ("if has_draw and classes[c, at.N_BLOCKS] > 0:", "if False:"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_BLOCKS)
def test_wrong_blocks_are_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in SMALL_BLOCKS:
        monkeypatch.setattr(*one)
    course, change = WRONG_BLOCKS[name]
    assert_noticed(name, course, plain(change), 150)


# Wrong variants of what is around them.


def effects_on_others_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> Course:
    """A class's terms count its own pods only."""
    right = Planner._add_effects

    def own_only(self: Planner, one: Any, terms: Any) -> None:
        right(self, one, [t for t in terms if t in one.terms])

    monkeypatch.setattr(Planner, "_add_effects", own_only)
    return replace(NARROW, wishes=(objects.is_apart, objects.prefers_near))


def counts_are_not_taken_anew(monkeypatch: pytest.MonkeyPatch) -> Course:
    """Pods that others place or remove are not counted."""
    right = Planner.recount

    def once(self: Planner, one: Any) -> None:
        if one.counted_at == self.__dict__.setdefault("first", one.counted_at):
            right(self, one)

    monkeypatch.setattr(Planner, "recount", once)
    return replace(NARROW, wishes=(objects.spreads, objects.spreads_softly))


def terms_of_others_come_unnoticed(monkeypatch: pytest.MonkeyPatch) -> Course:
    """A pod that somebody else has bound wants nobody near, by a key that no class had before."""
    right = Engine._follow

    def follow(self: Engine, snapshot: Any) -> None:
        self._n_entered = ExistingPodTerms.of(snapshot.nodes).n_entered
        right(self, snapshot)

    monkeypatch.setattr(Engine, "_follow", follow)
    return Course(happenings=TO_PODS, foreign=6, wishes=(objects.is_apart, objects.prefers_apart))


def terms_are_forgotten_with_classes(monkeypatch: pytest.MonkeyPatch) -> Course:
    """When there are too many classes the terms of those under way go too."""
    monkeypatch.setattr(engine, "CLASSES_MAX", 3)
    right = PodClassIndex.learn

    def learn(self: PodClassIndex, terms: Any) -> None:
        if self.all:
            right(self, terms)

    monkeypatch.setattr(PodClassIndex, "learn", learn)
    return Course(
        fresh=True, happenings=TO_PODS, foreign=1, wishes=(objects.is_apart, objects.is_near)
    )


def labels_of_nodes_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> Course:
    """What nodes are labelled is read once and for all."""
    state = Engine._state

    def first_shape(self: Engine, snapshot: Any) -> Any:
        _, *others = state(self, snapshot)
        return (snapshot.nodes.n_nodes, *others)

    monkeypatch.setattr(Engine, "_state", first_shape)
    return Course(foreign=7, wishes=(objects.selects_nodes, objects.tolerates))


def a_namespace_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> Course:
    """What stands beside nodes and pods is read once and for all."""
    state = Engine._state

    def first_object_store(self: Engine, snapshot: Any) -> Any:
        shape, _, table = state(self, snapshot)
        return shape, 0, table

    monkeypatch.setattr(Engine, "_state", first_object_store)
    changes = (a_namespace_changes, a_controller_changes)
    return Course(happenings=changes, wishes=(objects.is_owned, objects.is_apart))


def pods_with_claims_of_their_own_are_a_class(monkeypatch: pytest.MonkeyPatch) -> Course:
    """What was said of one pod's claim is said of another's."""
    monkeypatch.setattr(classes, "has_own_claims", lambda spec: False)
    return Course(foreign=1, wishes=(objects.owns_a_claim,))


AROUND: tuple[Callable[[pytest.MonkeyPatch], Course], ...] = (
    effects_on_others_are_forgotten,
    counts_are_not_taken_anew,
    terms_of_others_come_unnoticed,
    terms_are_forgotten_with_classes,
    labels_of_nodes_are_not_followed,
    a_namespace_is_not_followed,
    pods_with_claims_of_their_own_are_a_class,
)


@pytest.mark.parametrize("wrong", AROUND)
def test_mistakes_around_the_kernels_are_noticed(
    wrong: Callable[[pytest.MonkeyPatch], Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_noticed(wrong.__name__, wrong(monkeypatch), compiled, 150)


def walks(n_seeds: int, kernels: Any) -> None:
    for seed in range(n_seeds):
        walk_together(seed, 30, kernels)


def test_a_machine_that_places_by_another_rule_is_noticed() -> None:
    """Wrong: of equal rows the last is taken, not the first."""
    wrong = plain(("its = np.uint64(rank[row])", "its = ~np.uint64(rank[row])"))
    with pytest.raises(AssertionError):
        walks(20, wrong)
