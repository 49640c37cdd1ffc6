"""Vocabularies, incidence, label columns and growing arrays."""

import numpy as np
import pytest

from stowplan.columns.array_types import grow
from stowplan.columns.incidence import Incidence
from stowplan.columns.journal import KEPT_MIN, Journal
from stowplan.columns.labels import LabelColumns
from stowplan.columns.vocabulary import Vocabulary

ALL = slice(0, 3)


def test_an_item_keeps_its_number() -> None:
    words: Vocabulary[str] = Vocabulary()
    assert [words.add(word) for word in ("b", "a", "b")] == [0, 1, 0]
    assert (words.find("a"), words.find("z"), len(words)) == (1, -1, 2)


def test_a_rule_is_called_once_per_value_and_absence_counts_as_false() -> None:
    words: Vocabulary[str] = Vocabulary()
    for word in "abab":
        words.add(word)
    asked: list[str] = []
    answers = words.ask(lambda word: bool(asked.append(word)) or word == "b")
    assert asked == ["a", "b"]
    assert answers.tolist() == [False, True, False]


def incidence(*rows: tuple[str, ...]) -> Incidence[str]:
    made: Incidence[str] = Incidence()
    for row, values in enumerate(rows):
        made.write(row, values)
    return made


@pytest.mark.parametrize(
    ("rows", "counts"),
    [(ALL, [2, 0, 1]), (np.array([2, 0]), [1, 2]), (np.array([], dtype=np.int64), [])],
)
def test_items_are_counted_per_row(rows: slice | np.ndarray, counts: list[int]) -> None:
    table = incidence(("a", "a"), (), ("b", "a"))
    assert table.count_where(lambda value: value == "a", rows).tolist() == counts
    assert table.count_where(lambda value: False, rows).tolist() == [0] * len(counts)


def test_rows_with_all_items() -> None:
    table = incidence(("a", "b"), ("b",), ())
    assert table.has_all(("b",), ALL).tolist() == [True, True, False]
    assert table.has_all(("b", "a"), ALL).tolist() == [True, False, False]
    assert table.has_all((), ALL).tolist() == [True, True, True]
    assert table.has_all(("a", "never seen"), ALL).tolist() == [False, False, False]


def test_a_row_is_rewritten_and_copied_whole() -> None:
    table = incidence(("a", "b", "c"), ("d",), ())
    table.write(0, ("b",))
    table.copy_row(table, 1, 2)
    table.write(1, tuple("abcdefghijkl"))
    table.copy_row(table, 1, 0)
    assert table.has_all(("l",), ALL).tolist() == [True, True, False]
    assert table.has_all(("d",), ALL).tolist() == [True, True, True]
    assert table.count_where(lambda value: True, ALL).tolist() == [12, 12, 1]


def test_a_label_column_is_made_when_first_asked_for() -> None:
    labels = [{"disk": "ssd"}, {}, {"disk": "hdd"}]
    columns = LabelColumns(labels)  # type: ignore[arg-type]
    disk = columns.column("disk")
    assert disk.where(lambda value: value == "ssd", ALL).tolist() == [True, False, False]
    assert disk.where(lambda value: value is None, ALL).tolist() == [False, True, False]
    assert columns.column("rack").where(lambda value: value is None, ALL).tolist() == [True] * 3
    labels[1] = {"disk": "ssd"}
    columns.write(1)
    assert disk.where_in(("ssd",), ALL).tolist() == [True, True, False]
    assert disk.where_in(("ssd", "hdd"), ALL).tolist() == [True, True, True]
    assert disk.where_in(("tape",), ALL).tolist() == [False, False, False]
    assert disk.where_in((), np.array([2])).tolist() == [False]
    assert disk.where_in(("hdd",), np.array([2, 1])).tolist() == [True, False]


def test_arrays_grow_by_doubling_and_keep_what_they_hold() -> None:
    small = np.arange(10).reshape(2, 5)
    assert grow(small, (2, 5)) is small
    larger = grow(small, (3, 11), fill=-1)
    assert larger.shape == (8, 11)
    assert larger[:2, :5].tolist() == small.tolist()
    assert set(larger[2:].ravel().tolist()) == {-1}
    assert grow(np.zeros(10), (11,)).shape == (20,)


def test_a_journal_forgets_the_older_half() -> None:
    journal = Journal()
    for row in range(KEPT_MIN + 1):
        journal.touch(row)
    journal.trim(n_nodes=10)
    assert journal.generation == KEPT_MIN + 1
    assert journal.since(0) is None
    assert journal.since(KEPT_MIN // 2) == list(range(KEPT_MIN // 2, KEPT_MIN + 1))
    journal.trim(n_nodes=10)
    assert journal.since(KEPT_MIN // 2) is not None


def test_a_journal_names_a_row_once() -> None:
    journal = Journal()
    for row in (3, 1, 3):
        journal.touch(row)
    assert journal.since(0) == [3, 1]
    assert journal.since(2) == [3]
