"""Selectors: what they mean, and the words for what means nothing."""

import pytest

from stowplan.apis.machinery.field_selector import FieldRequirement, parse_field_selector
from stowplan.apis.machinery.label_selector import (
    LabelRequirement,
    SelectorParseError,
    parse_label_selector,
)

LABELS = {"app": "web", "tier": "front", "n": "5", "bad": "x1"}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("app", True),
        ("!app", False),
        ("!nope", True),
        ("app=web", True),
        ("app==web,tier!=back", True),
        ("app!=web", False),
        ("nope!=web", True),
        ("nope=", False),
        ("app in (web, api)", True),
        ("app in ()", False),
        ("app notin (web)", False),
        ("nope notin (web)", True),
        ("n>4", True),
        ("n<5", False),
        ("bad>1", False),
        ("nope>1", False),
        ("in in (in)", False),
        ("app in (web),n", True),
        ("app=,n", False),
        (" app = web ", True),
        ("app in (,web)", True),
        ("app in (api,,web)", True),
    ],
)
def test_label_selectors(text: str, holds: bool) -> None:
    assert all(term.matches(LABELS) for term in parse_label_selector(text)) is holds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        (
            "n>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt'"
            " operators, the value must be an integer",
        ),
    ],
)
def test_broken_label_selectors(text: str, why: str) -> None:
    with pytest.raises(SelectorParseError) as raised:
        parse_label_selector(text)
    assert str(raised.value) == why


def test_a_value_that_no_label_can_have_is_refused() -> None:
    with pytest.raises(
        SelectorParseError, match=r"values\[0\]\[a\]: Invalid value: \"b\$\": a valid label"
    ):
        parse_label_selector("a=b$")


def test_equality_is_a_set_of_one() -> None:
    assert parse_label_selector("a=b") == (LabelRequirement("a", "in", ("b",)),)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", ()),
        ("b=2,a!=1", (FieldRequirement("a", "1", False), FieldRequirement("b", "2"))),
        ("a==1", (FieldRequirement("a", "1"),)),
        ("a=", (FieldRequirement("a", ""),)),
        (r"a=1\,2\=3", (FieldRequirement("a", "1,2=3"),)),
    ],
)
def test_field_selectors(text: str, terms: tuple[FieldRequirement, ...]) -> None:
    assert parse_field_selector(text) == terms


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_broken_field_selectors(text: str, why: str) -> None:
    with pytest.raises(SelectorParseError) as raised:
        parse_field_selector(text)
    assert str(raised.value) == why
