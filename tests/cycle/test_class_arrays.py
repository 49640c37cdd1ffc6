"""ClassArrays: growing keeps the content, and forgotten entries are marked."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stowplan.columns.engine import arrays as at
from stowplan.columns.nodetable import table_of
from stowplan.cycle.engine import class_arrays
from stowplan.cycle.engine.class_arrays import ClassArrays, logarithms
from stowplan.testing import node
from stowplan.testing.builders import HOSTNAME, ZONE


def made(n_nodes: int = 4) -> ClassArrays:
    return ClassArrays(table_of([node(f"n{i}", zone="ab"[i % 2]) for i in range(n_nodes)]))


def test_classes_terms_and_counts_keep_what_they_hold_as_more_come() -> None:
    one = made()
    for i in range(40):
        number, term = one.add_class(), one.add_term(i % 3)
        one.classes[number, at.CPU] = one.terms[term, at.SKEW_MAX] = i
        one.counted(term)[:] = i
    assert one.classes[:40, at.CPU].tolist() == list(range(40))
    assert one.terms[:40, at.SKEW_MAX].tolist() == list(range(40))
    for term in range(40):
        assert one.counted(term).tolist() == [term] * (term % 3)


def test_effects_of_a_class_are_stored_together() -> None:
    one = made()
    first, second = one.add_class(), one.add_class()
    for number, term, count in ((second, 0, 5), (first, 1, 7), (second, 2, 9)):
        one.add_effect(number, term, count)
    rules = one.kernel_arrays()[1]
    found = {
        c: rules.effects[rules.first_effect[c] : rules.first_effect[c + 1]].tolist()
        for c in (first, second)
    }
    assert found == {first: [[1, 7]], second: [[0, 5], [2, 9]]}


def test_classes_that_come_later_have_no_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the kernels' arrays, which are the same until there is no more room."""
    monkeypatch.setattr(class_arrays, "CLASSES_FEW", 3)
    monkeypatch.setattr(class_arrays, "CLASSES_MAX", 6)
    one = made()
    one.add_effect(one.add_class(), 0, 5)
    n_same = 0
    for number in range(1, 20):
        before = one.kernel_arrays()[1]
        assert one.add_class() == number
        rules = one.kernel_arrays()[1]
        n_same += rules is before
        assert rules.classes is one.classes
        assert rules.first_effect[[0, 1, number, number + 1]].tolist() == [0, 1, 1, 1]
    assert n_same > 10


def test_there_is_room_for_all_classes_that_are_kept_once_they_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(class_arrays, "CLASSES_FEW", 10)
    one, rooms = made(), []
    for i in range(40):
        number = one.add_class()
        one.classes[number, at.CPU] = i
        rooms.append(one.classes.shape[0])
    assert rooms[9] < class_arrays.CLASSES_MAX
    assert rooms[-1] == class_arrays.CLASSES_MAX
    assert one.classes[:40, at.CPU].tolist() == list(range(40))
    assert (one.classes[:40, at.SEEN] == -1).all()
    assert not one.classes[40:].any()


def test_lines_with_the_same_scores_are_one() -> None:
    one = made()
    rising, falling = tuple(range(101)), tuple(range(100, -1, -1))
    assert [one.line(scores) for scores in (rising, falling, rising)] == [0, 1, 0]
    assert one.kernel_arrays()[1].lines[:2].tolist() == [list(rising), list(falling)]


def test_externally_changed_rows_are_appended_to_the_log() -> None:
    one = made()
    one.note([3, 1], 5)
    one.note([2], 5)
    assert one.log[: one.n_log].tolist() == [3, 1, 2]
    assert one.log.shape[0] >= one.n_log + 5


def test_a_forgotten_revision_resets_all_classes() -> None:
    one = made()
    one.classes[one.add_class(), at.SEEN] = 7
    one.note(None, 1)
    assert one.classes[0, at.SEEN] == -1


def test_the_older_half_of_a_long_log_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_arrays, "LOG_MIN", 8)
    one = made(1)
    for number, seen in enumerate((1, 4, 6)):
        one.add_class()
        one.classes[number, at.SEEN] = seen
    one.note([10, 11, 12, 13, 14, 15], 0)
    one.classes[:3, at.SEEN] = 1, 4, 6
    one.note([16], 2)
    assert one.log[: one.n_log].tolist() == [13, 14, 15, 16]
    assert one.classes[:3, at.SEEN].tolist() == [-1, 1, 3]


def test_the_least_recently_used_tree_is_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_arrays, "TREES_BYTES_MAX", 1)
    one = made()
    numbers = [one.add_class() for _ in range(9)]
    for number in numbers[:7]:
        one.want_tree(number)
    trees = one.classes[numbers[:7], at.TREE].tolist()
    assert sorted(trees) == [1, 2, 3, 4, 5, 6, 7]
    one.want_tree(numbers[0])
    one.want_tree(numbers[7])
    assert one.classes[numbers[1], at.TREE] == at.SHARED
    assert one.classes[numbers[7], at.TREE] == trees[1]
    assert one.classes[numbers[0], at.TREE] == trees[0]


def test_wider_trees_are_rebuilt() -> None:
    one = made(5)
    one.layout((ZONE,))
    number = one.add_class()
    one.want_tree(number)
    width = one.kernel_arrays()[2].trees.shape[1]
    one.classes[number, at.SEEN] = 3
    one.layout((HOSTNAME,))
    wider = one.kernel_arrays()[2].trees.shape[1]
    assert wider == width or one.classes[number, at.SEEN] == -1
    assert wider >= one.kernel_arrays()[2].rows_of.shape[1]


def test_logarithms_are_those_of_the_walk() -> None:
    assert logarithms(3).tolist() == [math.log(2.0), math.log(3.0), math.log(4.0)]
    assert logarithms(3).dtype == np.float64
