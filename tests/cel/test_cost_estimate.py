"""The greatest cost of an expression, estimated before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.cel.cel_types import cel_type
from stowplan.cel.cost_estimate import Path, estimate_cost
from stowplan.cel.cost_range import CostRange
from stowplan.cel.program import Environment, Program, kubernetes_library
from stowplan.cel.values import UINT_MAX, MapValue
from tests.soak import examples

SIZES: Mapping[Path, int] = {
    ("texts",): 5, ("texts", "@items"): 40, ("numbers",): 6, ("text",): 40, ("labels",): 3,
    ("labels", "@keys"): 40, ("labels", "@values"): 40,
}  # fmt: skip


def program(text: str) -> Program:
    variables = {
        "texts": cel_type("list(string)"),
        "numbers": cel_type("list(int)"),
        "text": cel_type("string"),
        "labels": cel_type("map(string, string)"),
        "free": cel_type("list(string)"),
    }
    return Environment(variables, kubernetes_library()).compile(text)


def size_of(path: Path) -> CostRange | None:
    found = SIZES.get(path)
    return None if found is None else CostRange(0, found)


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("true", 0),
        ("text", 1),
        ("text == 'abc'", 2),
        ("text.contains('0123456789')", 1 + 4 * 1),
        ("text.matches('abcd')", 1 + 5 * 1),
        ("text.startsWith(text)", 2 + 4),
        ("(text + text).startsWith(text)", 2 + 8 + 1 + 4),
        ("numbers.all(x, x > 0)", 1 + 1 + 6 * (2 + 1 + 2)),
        ("texts.exists(x, x == 'a')", 1 + 1 + 5 * (3 + 1 + 2)),
        ("texts.map(x, x)[0] == 'a'", 1 + 10 + 1 + 5 * (1 + 1 + 10 + 1) + 1 + 1),
        ("labels.all(k, labels[k] == k)", 1 + 1 + 3 * (2 + 1 + 3 + 1 + 4)),
        ("texts.join(',').size() > 0", 1 + 21 + 1 + 1),
        ("numbers.sum() > 0", 1 + 6 + 1),
        ("[1, 2].size() > 1", 10 + 1 + 1),
        ("{'a': 1}.size() > 1", 30 + 1 + 1),
        ("has(labels.a)", 1),
        ("numbers.size() > 1 ? text == 'a' : true", 1 + 1 + 1 + 2),
        ("free.all(x, free.all(y, x == y))", UINT_MAX),
        ("['a', 'b'].join('-') == ''", 1844674407370955274 + 0),
    ],
)
def test_estimates(text: str, cost: int) -> None:
    assert estimate_cost(program(text), size_of).high == cost


TEXTS = st.sampled_from(["text", "'lit'", "texts[0]", "text.lowerAscii()", "(text + 'x')"])
LISTS = st.sampled_from(["texts", "texts.map(x, x + 'y')", "text.split(',')", "['a', text]"])
TESTS = st.one_of(
    st.builds("{0} == {1}".format, TEXTS, TEXTS),
    st.builds("{0}.contains({1})".format, TEXTS, TEXTS),
    st.builds("{0}.all(i, i != {1})".format, LISTS, TEXTS),
    st.builds("{0}.exists(i, {1}.startsWith(i))".format, LISTS, TEXTS),
    st.builds("{1} in {0}".format, LISTS, TEXTS),
    st.builds("numbers.filter(n, n > {0}).size() < {0}".format, st.integers(0, 3)),
    st.builds("labels.all(k, labels[k] != {0})".format, TEXTS),
)
PROGRAMS = st.one_of(TESTS, st.builds("({0}) && ({1})".format, TESTS, TESTS))
VALUES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({
    "text": st.text("ab,", max_size=40),
    "texts": st.lists(st.text("ab", max_size=40), min_size=1, max_size=5).map(tuple),
    "numbers": st.lists(st.integers(0, 5), max_size=6).map(tuple),
    "labels": st.dictionaries(st.text("ab", max_size=40), st.text("ab", max_size=40), max_size=3)
    .map(lambda held: MapValue(held.items())),
})  # fmt: skip


def exceeds(text: str, values: dict[str, Any], sizes: Any) -> bool:
    """True if running costs more than was estimated."""
    compiled = program(text)
    found = compiled.outcome(values, 1_000_000)
    return bool(found.cost > estimate_cost(compiled, sizes).high)


@settings(max_examples=examples(150), deadline=None)
@given(PROGRAMS, VALUES)
def test_no_evaluation_costs_more_than_estimated(text: str, values: dict[str, Any]) -> None:
    assert not exceeds(text, values, size_of)


def test_an_estimate_of_shorter_lists_is_exceeded() -> None:
    def shorter(path: Path) -> CostRange | None:
        found = size_of(path)
        return None if found is None else CostRange(0, found.high // 2)

    values = {"texts": ("a", "b", "c", "d", "e")}
    assert exceeds("texts.all(i, i != 'x')", values, shorter)
