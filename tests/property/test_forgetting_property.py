"""What is forgotten because nobody asks for it any more changes no decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.columns import vocabulary
from stowplan.columns.invariants import validate
from stowplan.columns.labels import LabelColumn
from stowplan.cycle.engine import classes
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.cycle.engine.engine import Engine
from tests.property import engine_objects as objects
from tests.property.engine_kernels import plain
from tests.property.engine_twins import TO_PODS, Course, Twins, a_node_comes, a_node_goes
from tests.soak import examples

compiled = pytest.importorskip("stowplan.columns.engine.kernels")

SEEDS = st.integers(0, 2**32 - 1)
STEPS = st.integers(10, 40)
PLACES = (objects.tolerates, objects.spreads, objects.spreads_softly, objects.is_apart)
COURSES = (
    Course(foreign=8, happenings=(a_node_comes, a_node_goes), wishes=PLACES, sizes=(5, 8)),
    Course(foreign=3, happenings=TO_PODS, sizes=(5, 8)),
    Course(foreign=4, fresh=True, sizes=(3, 8)),
)


@pytest.fixture
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes are forgotten between two runs, values as soon as they are on no node."""
    right = Engine.place

    def place(self: Engine, *given: Any) -> list[int]:
        self.forget_idle()
        return right(self, *given)

    monkeypatch.setattr(classes, "KEPT_MAX", 0)
    monkeypatch.setattr(vocabulary, "KEPT_MIN", 1)
    monkeypatch.setattr(Engine, "place", place)


def walk_of(course: Course, seed: int, n_steps: int, kernels: Any = compiled) -> None:
    """Each pod goes where the walk would have it go that forgets nothing of pods."""
    twins = Twins(seed, course, kernels)
    for _ in range(n_steps):
        twins.walk(1)
        for one in (twins.fast, twins.slow):
            validate(one.nodes)


@pytest.mark.usefixtures("_forgetful")
@pytest.mark.parametrize("course", COURSES, ids=["nodes", "pods", "classes"])
def test_what_is_forgotten_is_not_missed(course: Course) -> None:
    @settings(max_examples=examples(6))
    @given(SEEDS, STEPS)
    def look(seed: int, n_steps: int) -> None:
        walk_of(course, seed, n_steps)

    look()


def numbers_stay_on_rows(patch: pytest.MonkeyPatch) -> None:
    """Values get other numbers, and rows have the old ones."""

    def forget_unused(self: LabelColumn, n_rows: int) -> None:
        left = self.vocabulary.without_unused(self.codes[:n_rows][self.codes[:n_rows] >= 0])
        if left is not None:
            self.vocabulary = left[0]

    patch.setattr(LabelColumn, "forget_unused", forget_unused)


def plans_outlive_their_sheets(patch: pytest.MonkeyPatch) -> None:
    """The sheets are begun anew, and classes go by the numbers that they had on the old ones."""

    def forget_idle(self: Engine) -> None:
        if self._index.forget_idle(0) and self._nodes is not None:
            self._class_arrays = ClassArrays(self._nodes)

    patch.setattr(Engine, "forget_idle", forget_idle)


WRONG: dict[str, tuple[Course, Callable[[pytest.MonkeyPatch], None]]] = {
    "numbers stay on rows": (COURSES[0], numbers_stay_on_rows),
    "plans outlive their sheets": (COURSES[2], plans_outlive_their_sheets),
}


@pytest.mark.usefixtures("_forgetful")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_variants_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    course, plant = WRONG[name]
    plant(monkeypatch)
    for seed in range(8):
        try:
            # Plain kernels: compiled ones do not see that they leave their arrays.
            walk_of(course, seed, 40, plain())
        except (AssertionError, LookupError):
            return
    pytest.fail("no journey showed the mistake")
