"""Sets of field paths."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apiserver.apply import field_set as fs
from tests.soak import examples

A_AND_BELOW = {"f:a": {".": {}, "f:b": {}}}


@pytest.mark.parametrize(
    ("one", "other", "union", "difference", "intersection"),
    [
        ({}, {"f:a": {}}, {"f:a": {}}, {}, {}),
        ({"f:a": {}}, {"f:a": {"f:b": {}}}, A_AND_BELOW, {"f:a": {}}, {}),
        # A path that is taken away leaves what is below it.
        (A_AND_BELOW, {"f:a": {}}, A_AND_BELOW, {"f:a": {"f:b": {}}}, {"f:a": {}}),
        (A_AND_BELOW, {"f:a": {"f:b": {}}}, A_AND_BELOW, {"f:a": {}}, {"f:a": {"f:b": {}}}),
    ],
)
def test_operations(one: Any, other: Any, union: Any, difference: Any, intersection: Any) -> None:
    assert fs.union(one, other) == union
    assert fs.difference(one, other) == difference
    assert fs.intersection(one, other) == intersection


def test_recursive_difference_takes_what_is_below() -> None:
    assert fs.recursive_difference({**A_AND_BELOW, "f:c": {}}, {"f:a": {}}) == {"f:c": {}}


def test_paths_are_in_the_order_of_errors() -> None:
    fields = {
        'k:{"name":"b"}': {"f:x": {}},
        "f:z": {},
        "f:a": {"f:deep": {}},
        'v:"t"': {},
        "v:5": {},
        'k:{"name":"a","port":1}': {},
    }
    assert [fs.path_text(path) for path in fs.paths(fields)] == [
        ".z",
        '[name="a",port=1]',
        "[=5]",
        '[="t"]',
        ".a.deep",
        '[name="b"].x',
    ]


def test_sent_sets_become_canonical() -> None:
    sent = {'k:{ "b": 1, "a": "x" }': {".": {}}, "f:a": {}, "x:other": {}, "f:gone": {".": {}}}
    assert fs.parse_field_set(sent) == {'k:{"a":"x","b":1}': {}, "f:a": {}, "f:gone": {}}


@pytest.mark.parametrize("sent", [{"f": {}}, {"k:{": {}}, {"f:a": 1}, {"k:5": {}}, [1]])
def test_what_is_no_set_is_refused(sent: Any) -> None:
    with pytest.raises(fs.InvalidFieldSet):
        fs.parse_field_set(sent)


PATHS = st.sets(st.lists(st.sampled_from(["f:a", "f:b", "v:1"]), min_size=1, max_size=3).map(tuple))


def _set_of(paths: set[tuple[str, ...]]) -> fs.FieldSet:
    made: fs.FieldSet = {}
    for path in paths:
        made = fs.union(made, fs.set_of_path(path))
    return made


@settings(max_examples=examples(150), deadline=None)
@given(PATHS, PATHS)
def test_trees_are_sets_of_paths(one: set[tuple[str, ...]], other: set[tuple[str, ...]]) -> None:
    first, second = _set_of(one), _set_of(other)
    assert set(fs.paths(fs.union(first, second))) == one | other
    assert set(fs.paths(fs.difference(first, second))) == one - other
    assert set(fs.paths(fs.intersection(first, second))) == one & other
    assert all(fs.has_path(first, path) == (path in one) for path in one | other)


def test_the_property_finds_a_union_that_forgets_members(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(one: fs.FieldSet, other: fs.FieldSet) -> fs.FieldSet:
        return {**one, **other}

    monkeypatch.setattr(fs, "union", forgetful)
    one, other = {("f:a",)}, {("f:a", "f:b")}
    joined = fs.union(_set_of(one), _set_of(other))
    assert set(fs.paths(joined)) != one | other
