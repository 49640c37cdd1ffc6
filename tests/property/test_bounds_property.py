"""Bounds of points: no row has more points than its bound, and pods placed by bounds go where the
exact points of every row would have them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stowplan.columns.engine import arrays as at
from tests.property.engine_kernels import plain
from tests.soak import examples

compiled = pytest.importorskip("stowplan.columns.engine.kernels")

SEEDS = st.integers(0, 2**32 - 1)
CPU, MEMORY, PODS = 0, 1, 2
GIB = 2**30
N_PODS = 9
NO_CARDS = np.zeros((0, 0), dtype=np.int64)


class Case(NamedTuple):
    """Nodes in some state and classes of one pod each. columns, rules: see `arrays`."""

    columns: at.NodeColumns
    rules: at.ClassRules

    @property
    def n_nodes(self) -> int:
        return self.rules.behind.shape[0]

    def copy(self) -> Case:
        return Case(
            at.NodeColumns(*(one.copy() for one in self.columns)),
            at.ClassRules(*(one.copy() for one in self.rules)),
        )


def whole_amounts(rng: np.random.Generator, n_nodes: int) -> NDArray[np.int64]:
    """int64 (3, n_nodes): what nodes have; of few kinds, or each of its own."""
    kinds = rng.integers(1, 4) if rng.random() < 0.7 else n_nodes
    cpu = rng.choice([1000, 4000, 16_000, 96_000], kinds)
    memory = rng.choice([2, 15, 64, 1024], kinds) * GIB
    if rng.random() < 0.5:
        cpu, memory = cpu - rng.integers(0, 999, kinds), memory - rng.integers(0, GIB, kinds)
    pods = rng.choice([3, 110], kinds)
    kind = rng.integers(0, kinds, n_nodes)
    found: NDArray[np.int64] = np.stack([cpu[kind], memory[kind], pods[kind]]).astype(np.int64)
    return found


def taken(rng: np.random.Generator, whole: NDArray[np.int64], asked: int) -> NDArray[np.int64]:
    """int64 (n_nodes,): amounts used. With a pod's they are often close to a whole percent, which
    is where points change."""
    percent = rng.integers(0, 101, whole.shape[0])
    used = whole * percent // 100 - asked + rng.integers(-2, 3, whole.shape[0])
    used[rng.random(whole.shape[0]) < 0.3] = 0
    return np.maximum(used, 0)


def make_case(seed: int, n_nodes: int, n_pods: int) -> Case:
    """Pods with requests of their own, of which some ask for what others do."""
    rng = np.random.default_rng(seed)
    whole = whole_amounts(rng, n_nodes)
    cpu = rng.choice([1, 100, 137, 1000, 5000], n_pods) * rng.integers(1, 4, n_pods)
    memory = rng.choice([1, 2**20, 200 * 2**20, 3 * GIB + 7], n_pods) * rng.integers(1, 4, n_pods)
    requested = np.zeros_like(whole)
    requested[CPU] = taken(rng, whole[CPU], int(cpu[0]))
    requested[MEMORY] = taken(rng, whole[MEMORY], int(memory[0]))
    nonzero = requested[:2] + rng.choice([0, 1, 100], (2, n_nodes)) * rng.integers(0, 2)
    if rng.random() < 0.3:
        # Nodes alike.
        requested[:], nonzero[:], whole[:] = requested[:, :1], nonzero[:, :1], whole[:, :1]
    columns = at.NodeColumns(
        whole, requested, nonzero, rng.integers(0, 4, n_nodes), rng.permutation(n_nodes)
    )
    classes = np.zeros((n_pods, at.N_COLUMNS), dtype=np.int64)
    for c in range(n_pods):
        write_class(classes[c], int(cpu[c]), int(memory[c]), int(rng.integers(0, 3)))
    classes[:, [at.USE_WEIGHT, at.EVEN_WEIGHT]] = rng.choice([0, 1, 1, 7], 2)
    if n_pods > 1:
        # Too heavy to be bounded.
        classes[rng.random(n_pods) < 0.2, at.USE_WEIGHT] = 2 * compiled.WEIGHT_MAX
    return Case(columns, rules_of(rng, classes, n_nodes))


def make_alike(seed: int, n_nodes: int, n_pods: int) -> Case:
    """As `make_case`, where most nodes are in one state, or nearly."""
    case, rng = make_case(seed, n_nodes, n_pods), np.random.default_rng(seed + 1)
    (whole, requested, nonzero, pod_count, _), rules = case.columns, case.rules
    alike = np.flatnonzero(rng.random(n_nodes) < 0.9)
    for column in (whole, requested, nonzero):
        column[:, alike] = column[:, :1] // 2 if column is requested else column[:, :1]
    pod_count[alike] = 0
    rules.points[:, alike] = rules.points[:, :1]
    rules.passes[:, alike] = 1
    if rng.random() < 0.5:
        rules.classes[:, at.STATIC] = 0
    if rng.random() < 0.5:
        nonzero[:, alike[rng.random(alike.shape[0]) < 0.2]] += 2**30
    if rng.random() < 0.5:
        rules.passes[:, alike[rng.random(alike.shape[0]) < 0.2]] = 0
    return case


def write_class(params: NDArray[np.int64], cpu: int, memory: int, static: int) -> None:
    params[[at.STATIC, at.SEEN, at.TREE, at.N_GROUPS]] = static, -1, at.SHARED, 1
    params[[at.HAS_ROOM, at.PODS, at.USE_KIND]] = 1, PODS, at.LEAST
    params[[at.N_WANTED, at.N_USED, at.N_EVEN, at.N_TAKEN]] = 2
    pairs = CPU, cpu, MEMORY, memory
    for first in (at.WANTED, at.EVEN, at.TAKEN):
        params[first : first + 4] = pairs
    params[at.USED : at.USED + 8] = (
        CPU,
        1,
        at.NONZERO_CPU,
        cpu,
        MEMORY,
        1,
        at.NONZERO_MEMORY,
        memory,
    )
    params[[at.CPU, at.MEMORY]] = cpu, memory


def rules_of(rng: np.random.Generator, classes: NDArray[np.int64], n_nodes: int) -> at.ClassRules:
    points = rng.integers(0, 4, (3, n_nodes)) * rng.choice([0, 0, 1, 100])
    return at.ClassRules(
        classes=classes,
        passes=(rng.random((3, n_nodes)) < rng.choice([0.5, 1])).astype(np.uint8),
        points=points,
        raw=np.zeros((3, at.NORMALISED_MAX, n_nodes), dtype=np.int64),
        terms=np.zeros((1, at.N_TERM_COLUMNS), dtype=np.int64),
        counts=np.zeros(1, dtype=np.int64),
        present=np.zeros(1, dtype=np.uint8),
        codes=np.full((1, n_nodes), -1, dtype=np.int32),
        masks=np.zeros((0, n_nodes), dtype=np.uint8),
        behind=np.zeros(n_nodes, dtype=np.uint8),
        logs=np.log(np.arange(3) + 2.0),
        first_effect=np.zeros(classes.shape[0] + 1, dtype=np.int64),
        effects=np.zeros((0, 2), dtype=np.int64),
        lines=np.zeros((1, at.N_LINE_COLUMNS), dtype=np.int64),
    )


def frame(n_nodes: int, n_pods: int) -> tuple[at.DomainGrouping, at.Scratch]:
    """One group of all rows, and working memory."""
    size = 1 << max(n_nodes - 1, 0).bit_length()
    groups = np.zeros((1, 4, 1), dtype=np.int64)
    groups[0, at.SIZE, 0] = size
    places = np.zeros((1, 3, n_nodes), dtype=np.int32)
    places[0, at.LEAF] = size + np.arange(n_nodes)
    rows_of = np.full((1, 2 * size), -1, dtype=np.int32)
    rows_of[0, size : size + n_nodes] = np.arange(n_nodes)
    grouping = at.DomainGrouping(
        groups,
        np.full((1, at.KEYS_MAX, 1), -1, dtype=np.int32),
        places,
        rows_of,
        np.zeros((1, 2 * size), dtype=np.int32),
        np.zeros(n_pods, dtype=np.int32),
        np.zeros((1, 1, 17), dtype=np.int32),
    )
    scratch = at.Scratch(
        np.zeros((at.N_GROUP_ROWS, 1), dtype=np.int64),
        np.zeros((1, 1), dtype=np.int64),
        np.zeros(1, dtype=np.float64),
        np.zeros(3, dtype=np.int64),
        np.zeros(64, dtype=np.int64),
        np.zeros(n_nodes, dtype=np.float64),
        np.zeros(n_nodes, dtype=np.int32),
        np.zeros(1, dtype=np.int64),
        *at.bound_arrays(n_nodes),
    )
    return grouping, scratch


def placed(kernels: ModuleType, case: Case, draws: Any, at_once: int) -> list[tuple[int, int]]:
    """Row and points of the first pods, those of a call `at_once`, until one fits nowhere."""
    n_pods = case.rules.classes.shape[0]
    grouping, scratch = frame(case.n_nodes, n_pods)
    found: list[tuple[int, int]] = []
    for first in range(0, n_pods, at_once):
        heads = np.arange(first, min(first + at_once, n_pods))
        rows, totals = np.zeros(heads.shape[0], dtype=np.int64), np.zeros(heads.shape[0], np.int64)
        some = draws[first : first + at_once]
        n_placed = kernels.run(
            tuple(case.columns), tuple(case.rules), tuple(grouping), tuple(scratch), heads, some,
            rows, totals, NO_CARDS, NO_CARDS, 0,
        )  # fmt: skip
        found += zip(rows[:n_placed].tolist(), totals[:n_placed].tolist(), strict=True)
        if n_placed < heads.shape[0]:
            break
    return found


MakeCase = Callable[[int, int, int], Case]


def same_rows(seed: int, kernels: ModuleType, n_nodes: int, make: MakeCase = make_case) -> int:
    """Compare pods placed in one call, by bounds, with those placed one by one, by the points of
    every row; returns how many."""
    case = make(seed, n_nodes, N_PODS)
    draws = np.random.default_rng(seed).integers(0, 2**63, N_PODS if seed % 4 else 0)
    by_bounds = placed(kernels, case.copy(), draws.astype(np.uint64), N_PODS)
    assert by_bounds == placed(compiled, case.copy(), draws.astype(np.uint64), 1)
    return len(by_bounds)


def all_bounds(kernels: ModuleType, case: Case, c: int) -> tuple[Any, Any]:
    """int32 (n_nodes,): the bounds of all rows for a class, and their points."""
    columns, rules, classes = case.columns, case.rules, case.rules.classes
    _, scratch = frame(case.n_nodes, 1)
    even, leaves, shares, marks = scratch.even, scratch.leaves, scratch.shares, scratch.marks
    of_class, at_places = (c, 0, case.n_nodes, classes), (c, 0, case.n_nodes, 0, classes)
    kernels.note_evenness(*of_class, columns.allocatable, columns.requested, even)
    kernels.note_shares(
        *at_places, columns.allocatable, columns.requested, columns.nonzero, even, shares, marks
    )
    kernels.note_base(
        *at_places, columns.allocatable, columns.pod_count, rules.passes, rules.points, marks
    )
    amounts = classes[c, [at.USED + 3, at.USED + 7, at.EVEN + 1, at.EVEN + 3]].astype(np.float32)
    weights = classes[c, [at.USE_WEIGHT, at.EVEN_WEIGHT]].astype(np.int32)
    kernels.bound_rows(0, case.n_nodes, *amounts, *weights, shares, marks)
    assert kernels.fill_plain(
        *of_class, columns.allocatable, columns.requested, columns.nonzero, columns.pod_count,
        rules.passes, rules.points, even, leaves, NO_CARDS,
    )  # fmt: skip
    return marks[at.BOUND, : case.n_nodes], leaves


def assert_bounded(seed: int, kernels: ModuleType, n_nodes: int) -> float:
    """No row has more points than its bound, and where that is sure it has as many; returns the
    share of rows that are sure."""
    bounds, points = all_bounds(kernels, make_case(seed, n_nodes, 1), 0)
    fitting = points >= 0
    assert (bounds[fitting] >> 1 >= points[fitting]).all()
    is_sure = bounds & 1 == 0
    assert (bounds[fitting & is_sure] == 2 * points[fitting & is_sure]).all()
    assert (bounds[~fitting & is_sure] < 0).all()
    return float((is_sure | (bounds < 0)).mean())


@settings(max_examples=examples(300))
@given(SEEDS)
def test_no_row_has_more_points_than_its_bound(seed: int) -> None:
    assert_bounded(seed, compiled, 2000)


def test_most_bounds_are_sure_though_many_amounts_are_at_their_edge() -> None:
    shares = [assert_bounded(seed, compiled, 2000) for seed in range(40)]
    assert 0.3 < np.mean(shares) < 1


@settings(max_examples=examples(300))
@given(SEEDS, st.integers(1, 300))
def test_pods_go_where_the_points_of_all_rows_have_them(seed: int, n_nodes: int) -> None:
    same_rows(seed, compiled, n_nodes)


@settings(max_examples=examples(300))
@given(SEEDS, st.integers(1, 600))
def test_they_do_where_most_nodes_are_alike(seed: int, n_nodes: int) -> None:
    same_rows(seed, compiled, n_nodes, make_alike)


@pytest.mark.parametrize("make", [make_case, make_alike])
def test_most_pods_of_these_are_placed(make: MakeCase) -> None:
    assert sum(same_rows(seed, compiled, 130, make) for seed in range(40)) > 20 * N_PODS


@settings(max_examples=examples(6))
@given(SEEDS, st.sampled_from([1, 63, 64, 65, 130]))
def test_bounds_stay_within_their_arrays(seed: int, n_nodes: int) -> None:
    same_rows(seed, plain(), n_nodes)


# Wrong variants.

WRONG_BOUNDS = {
    "what single precision is off by does not count": (
        "np.float32(2**-13), np.float32(2**-12), np.float32(100 + 2**-13)",
        "np.float32(0), np.float32(0), np.float32(100)",
    ),
    "a row as even as before has a point less": ("= 150 - np.int32(even", "= 149 - np.int32(even"),
    "a pod that may just fit does not": ("if fitting <= -SLACK:", "if fitting <= SLACK:"),
    "a full row is open": ("(passes[static, row] != 0) & (pod_count", "True | (pod_count"),
    "memory is sure wherever cpu is": ("np.int32(memory - TWICE_SLACK)", "np.int32(memory)"),
}


@pytest.mark.parametrize("name", WRONG_BOUNDS)
def test_wrong_bounds_are_noticed(name: str) -> None:
    wrong = plain(WRONG_BOUNDS[name])
    for seed in range(60):
        try:
            assert_bounded(seed, wrong, 100)
        except AssertionError:
            return
    pytest.fail("no seed showed the mistake")


WRONG_CHOICES = {
    "a row that a pod was placed on has the shares it had": (
        "noted, row, row + 1, place, classes",
        "noted, row, row, place, classes",
    ),
    "a row that has no slot left is open": (
        "based, row, row + 1, place, classes",
        "based, row, row, place, classes",
    ),
    "the rows that pass are those of another class": (
        "and classes[c, at.STATIC] == classes[based, at.STATIC]",
        "",
    ),
    "a bound that is not sure is taken for the points": (
        "marks[at.BOUND, place] = np.int32(2 * leaves[marks[at.ROW_AT, place]])",
        "marks[at.BOUND, place] = np.int32(2 * level)",
    ),
    "ties go to the first block": ("return n_lower == 0", "return True"),
    "the tie-break rank of a row is another one": (
        "salts[row] = salt ^ (salt >> np.uint64(30))",
        "salts[row] = salt",
    ),
    "rows of no block come last": (
        "for block in range(n_bounded):\n            highest",
        "for block in range(n_bounded - 1):\n            highest",
    ),
}


@pytest.mark.parametrize("name", WRONG_CHOICES)
def test_wrong_choices_are_noticed(name: str) -> None:
    wrong = plain(WRONG_CHOICES[name])
    for seed in range(60):
        try:
            same_rows(seed, wrong, 130)
        except AssertionError:
            return
    pytest.fail("no seed showed the mistake")


WRONG_AMONG_ALIKE = {
    "a row that a pod was placed on is still like the others": (
        "place = leave_alike(row, shares, marks, salts)",
        "place = np.int64(marks[at.PLACE_OF, row])",
    ),
    "rows are alike whatever is used with defaults": (
        "            & (nonzero[0, row] == cpu_filled)\n"
        "            & (nonzero[1, row] == memory_filled)\n",
        "",
    ),
    "rows are alike that do not all pass": ("            & (marks[at.BASE, row] == base)\n", ""),
    "a row takes its tie-break rank to no other place": (
        "    salts[first], salts[second] = salts[second], salts[first]\n",
        "",
    ),
    "the rows alike for one class are so for the next": (
        "if based < 0 or marks[at.IS_ARRANGED, 0] == 1:",
        "if based < 0:",
    ),
    "of rows that are alike only a block may have the smallest rank": (
        "        first += at.BOUND_ROWS\n    return chosen",
        "        first = rank.shape[0]\n    return chosen",
    ),
    "the first of a block stays the first when it has left": (
        "    marks[at.FIRST_ALIKE, place // at.BOUND_ROWS] = NOWHERE\n",
        "",
    ),
}


@pytest.mark.parametrize("name", WRONG_AMONG_ALIKE)
def test_wrong_choices_among_nodes_that_are_alike_are_noticed(name: str) -> None:
    wrong = plain(WRONG_AMONG_ALIKE[name])
    for seed in range(80):
        try:
            same_rows(seed, wrong, 330, make_alike)
        except AssertionError:
            return
    pytest.fail("no seed showed the mistake")
