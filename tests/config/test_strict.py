"""The walker: what each type accepts, and that every mistake is found with its path."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from stowplan.config.strict_decoder import INVALID, Problems, decode, encode
from stowplan.framework import Problem
from stowplan.objects.pod import NodeAffinity
from stowplan.objects.selectors import NodeSelectorRequirement, NodeSelectorTerm


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct, frozen=True, rename="camel"):
    the_name: str = "x"
    time_limit: timedelta = timedelta(seconds=5)


class Outer(msgspec.Struct, frozen=True, rename="camel"):
    size: int
    inner: Inner = Inner()
    items: tuple[Inner, ...] = ()
    by_name: dict[str, int] = {}
    odd_name: bool = msgspec.field(default=False, name="HTTPS")


class Even(msgspec.Struct, frozen=True):
    number: int = 0

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("an even number")


def walk(tree: Any, kind: Any) -> tuple[Any, list[str]]:
    problems = Problems()
    value = decode(tree, kind, "at", problems)
    return value, [str(problem) for problem in problems.found]


@pytest.mark.parametrize(
    ("kind", "tree", "value"),
    [
        (int, 5, 5),
        (int, 5.0, 5),
        (float, 5, 5.0),
        (float, -2.5, -2.5),
        (str, "5", "5"),
        (bool, True, True),
        (bytes, "YWI=", b"ab"),
        (timedelta, "1m30s", timedelta(seconds=90)),
        (Any, {"a": [1]}, {"a": [1]}),
        (int | None, None, None),
        (int | None, 5, 5),
        (str | int | float, 1.5, 1.5),
        (str | int | float, "1", "1"),
        (Literal["a", "b"], "b", "b"),
        (Colour, "red", Colour.RED),
        (tuple[int, ...], [1, 2], (1, 2)),
        (list[str], ["a"], ["a"]),
        (frozenset[str], ["a", "a"], frozenset("a")),
        (Sequence[int], [1], (1,)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Mapping[str, Any], {"a": None}, {"a": None}),
        (Annotated[int, Meta(ge=1, le=5)], 5, 5),
        (Annotated[str, Meta(min_length=1, pattern="^a")], "ab", "ab"),
        (Inner, {}, Inner()),
        (Inner, {"theName": None, "timeLimit": "1s"}, Inner("x", timedelta(seconds=1))),
        (Outer, {"size": 1, "HTTPS": True}, Outer(1, odd_name=True)),
        (
            Outer,
            {"size": 1, "items": [{}, {"theName": "b"}]},
            Outer(1, items=(Inner(), Inner("b"))),
        ),
        (Even, {"number": 2}, Even(2)),
    ],
)
def test_what_fits(kind: Any, tree: Any, value: Any) -> None:
    read, errors = walk(tree, kind)
    assert not errors
    assert read == value
    assert type(read) is type(value)


WHOLE, DURATION = "expected a whole number", "expected a duration such as 300ms, 15s or 1h30m"


@pytest.mark.parametrize(
    ("kind", "tree", "error"),
    [
        (int, "a", f"Invalid value: 'a': {WHOLE}"),
        (int, "5", f"Invalid value: '5': {WHOLE} (write it without quotes)"),
        (int, True, f"Invalid value: true: {WHOLE}"),
        (int, 1.5, f"Invalid value: 1.5: {WHOLE}"),
        (int, None, f"Invalid value: null: {WHOLE}"),
        (int, 2**63, f"Invalid value: {2**63}: {WHOLE} of 64 bits"),
        (int, {}, f"Invalid value: an empty mapping: {WHOLE}"),
        (float, True, "Invalid value: true: expected a number"),
        (float, float("inf"), "Invalid value: inf: expected a finite number"),
        (float, 10**400, "Invalid value: a number of 1329 bits: expected a finite number"),
        (str, 5, 'Invalid value: 5: expected a string (put it in quotes: "5")'),
        (str, True, 'Invalid value: true: expected a string (put it in quotes: "true")'),
        (str, ["a"], "Invalid value: a list: expected a string"),
        (bool, "true", "Invalid value: 'true': expected true or false (write it without quotes)"),
        (bool, 1, "Invalid value: 1: expected true or false"),
        (bytes, "*", "Invalid value: '*': expected base64 text"),
        (timedelta, 5, f"Invalid value: 5: {DURATION} (did you mean '5s'?)"),
        (timedelta, "5", f"Invalid value: '5': {DURATION}"),
        (int | None, "a", f"Invalid value: 'a': {WHOLE}"),
        (
            str | int,
            1.5,
            f"Invalid value: 1.5: expected a string or {WHOLE.removeprefix('expected ')}",
        ),
        (
            Literal["ab", "b"],
            "aB",
            "Invalid value: 'aB': expected 'ab' or 'b' (did you mean 'ab'?)",
        ),
        (Colour, "green", "Invalid value: 'green': expected 'red' or 'blue'"),
        (tuple[int, ...], 1, "Invalid value: 1: expected a list"),
        (
            tuple[Inner, ...],
            {"a": 1},
            "Invalid value: a mapping: expected a list (put a dash before it)",
        ),
        (dict[str, int], [1], "Invalid value: a list: expected a mapping"),
        (Annotated[int, Meta(ge=1, le=5)], 6, f"Invalid value: 6: {WHOLE}, 1 to 5"),
        (Annotated[int, Meta(ge=1)], 0, f"Invalid value: 0: {WHOLE}, at least 1"),
        (
            Annotated[str, Meta(min_length=1)],
            "",
            "Invalid value: '': expected a string, at least this long: 1",
        ),
        (Inner, 5, "Invalid value: 5: expected a mapping of theName, timeLimit"),
        (Even, {"number": 3}, "Invalid value: a mapping: expected an even number"),
        (str, "x" * 99, ""),
    ],
)
def test_what_does_not(kind: Any, tree: Any, error: str) -> None:
    read, errors = walk(tree, kind)
    assert errors == ([f"at: {error}"] if error else [])
    assert (read is INVALID) == bool(error)


def test_every_mistake_is_found_and_the_rest_is_read() -> None:
    tree = {
        "size": "big",
        "sise": 1,
        "inner": {"the_name": "a", "timeLimit": "soon"},
        "items": [{"theName": 1}, "b", {"theName": "c"}],
        "byName": {"a": 1, "b/c": "x"},
        "HTTPS": "yes",
    }
    read, errors = walk(tree, Outer)
    assert errors == [
        "at.size: Invalid value: 'big': expected a whole number",
        "at.sise: Unknown field: expected size, inner, items, byName, HTTPS (did you mean 'size'?)",
        "at.inner.the_name: Unknown field: expected theName, timeLimit (did you mean 'theName'?)",
        f"at.inner.timeLimit: Invalid value: 'soon': {DURATION}",
        'at.items[0].theName: Invalid value: 1: expected a string (put it in quotes: "1")',
        "at.items[1]: Invalid value: 'b': expected a mapping of theName, timeLimit",
        "at.byName['b/c']: Invalid value: 'x': expected a whole number",
        "at.HTTPS: Invalid value: 'yes': expected true or false",
    ]
    # `size` has no default to go on with.
    assert read is INVALID
    read, errors = walk(tree | {"size": 1}, Outer)
    assert len(errors) == 7
    assert read == Outer(1, items=(Inner(), Inner(), Inner("c")), by_name={"a": 1})


def test_a_missing_field_is_named_with_what_it_takes() -> None:
    assert walk({}, Outer) == (INVALID, ["at.size: expected a whole number"])


def test_kubernetes_objects_are_read_strictly_too() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    read, errors = walk({required: {"nodeSelectorTerms": [term]}}, NodeAffinity)
    assert not errors
    requirement = NodeSelectorRequirement("a", "In", ("b",))
    assert read.required.node_selector_terms == (NodeSelectorTerm((requirement,)),)
    typo = {"matchExpressions": [{"key": "a", "op": "In", "values": [1]}]}
    read, errors = walk({required: {"nodeSelectorTerms": [typo]}}, NodeAffinity)
    where = f"at.{required}.nodeSelectorTerms[0].matchExpressions[0]"
    assert errors == [
        f"{where}.op: Unknown field: expected key, operator, values",
        f'{where}.values[0]: Invalid value: 1: expected a string (put it in quotes: "1")',
    ]


def test_long_values_are_cut() -> None:
    _, (error,) = walk("x" * 999, int)
    assert len(error) < 120


def test_later_checks_skip_invalid_values() -> None:
    problems = Problems()
    problems.add("a.b", "1", "2")
    problems.add("a.c", "an unknown field", "b", invalidates=False)
    later = [Problem(path, "got", "wanted") for path in ("a", "a.b", "a.b[0].x", "a.bc", "a.c")]
    problems.extend(later)
    assert [problem.path for problem in problems.found] == ["a.b", "a.c", "a.bc", "a.c"]
    assert problems.is_invalid("a")
    assert not problems.is_invalid("a.c")


# Any value is printed as what is read back as the same.

names = st.text("abc", max_size=3)
limits = st.timedeltas(timedelta(0), timedelta(days=9))
inners = st.builds(Inner, names, limits)
outers = st.builds(
    Outer,
    st.integers(-(2**63), 2**63 - 1),
    inners,
    st.lists(inners, max_size=3).map(tuple),
    st.dictionaries(names, st.integers(0, 9), max_size=2),
    st.booleans(),
)


def check_round_trip(print_it: Any) -> None:
    @given(outers)
    def returns(value: Outer) -> None:
        assert walk(print_it(value), Outer) == (value, [])

    returns()


@pytest.mark.hypothesis
def test_what_is_printed_is_read_back() -> None:
    check_round_trip(encode)


def test_control_printing_as_msgspec_does() -> None:
    with pytest.raises(AssertionError):
        check_round_trip(msgspec.to_builtins)


def test_printing_leaves_out_what_is_absent() -> None:
    assert encode({"a": (Colour.RED, b"ab", None)}) == {"a": ["red", "YWI=", None]}
    assert encode(NodeAffinity()) == {}
    assert encode(Inner()) == {"theName": "x", "timeLimit": "5s"}
    assert encode(frozenset("ba")) == ["a", "b"]
