"""JSON as Go reads it: what is let through, and what is said of the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.objects.encoding.go_json import (
    GoDecodeError,
    GoInt64,
    GoMap,
    GoObject,
    GoSlice,
    GoString,
    GoStruct,
    SyntaxScanner,
    read,
)

POINT = GoStruct("shapes.Point", {"X": GoInt64(), "Y": GoInt64()})
SHAPE = GoStruct(
    "shapes.Shape",
    {
        "Name": GoString(),
        "Corners": GoSlice("[]shapes.Point", POINT),
        "Notes": GoMap("map[string]string", GoString()),
        "Origin": POINT,
        "Whole": GoObject("shapes.Any"),
    },
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{}", {}),
        ("null", None),
        ('{"Name": "\\ud83d\\ude00 \\ud800!"}', {"Name": "\U0001f600 \ufffd!"}),
        ('{"name": "a", "NAME": "b"}', {"Name": "b"}),
        ('{"Name": null, "other": [1]}', {"Name": None}),
        (' {"Name": "a"} and more', {"Name": "a"}),
        ('{"Origin": {"x": -5, "Y": null}}', {"Origin": {"X": -5, "Y": None}}),
        ('{"Corners": [{"X": 1}, null]}', {"Corners": [{"X": 1}, None]}),
        ('{"Notes": {"x": "y"}}', {"Notes": {"x": "y"}}),
        (
            '{"Whole": {"a": [1, 2.5, "3"], "b": null}}',
            {"Whole": {"a": [1, 2.5, "3"], "b": None}},
        ),
    ],
)
def test_what_is_read(text: str, wanted: Any) -> None:
    assert read(text.encode(), SHAPE) == wanted


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "EOF"),
        (" \n", "EOF"),
        ("{", "unexpected EOF"),
        ('{"Name"', "unexpected EOF"),
        ('"abc', "unexpected EOF"),
        ("tru", "unexpected EOF"),
        ("-", "unexpected EOF"),
        ("x", "invalid character 'x' looking for beginning of value"),
        ("\ufeff{}", "invalid character 'ï' looking for beginning of value"),
        ("NaN", "invalid character 'N' looking for beginning of value"),
        ("nope", "invalid character 'o' in literal null (expecting 'u')"),
        ("{1", "invalid character '1' looking for beginning of object key string"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a": 01}', "invalid character '1' after object key:value pair"),
        ('{"a": 1,}', "invalid character '}' looking for beginning of object key string"),
        ("[1 2]", "invalid character '2' after array element"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("[1.]", "invalid character ']' after decimal point in numeric literal"),
        ("[1e]", "invalid character ']' in exponent of numeric literal"),
        ('["\n"]', "invalid character '\\n' in string literal"),
        ('["\\x"]', "invalid character 'x' in string escape code"),
        ('["\\u00g0"]', "invalid character 'g' in \\u hexadecimal character escape"),
        ("['a']", "invalid character '\\'' looking for beginning of value"),
    ],
)
def test_what_is_no_json(text: str, fault: str) -> None:
    assert read(text.encode(), SHAPE) == GoDecodeError(fault)


WRONG = "json: cannot unmarshal"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[]", f"{WRONG} array into Go value of type shapes.Shape"),
        ('"a"', f"{WRONG} string into Go value of type shapes.Shape"),
        ("1.5", f"{WRONG} number into Go value of type shapes.Shape"),
        ('{"Name": 5}', f"{WRONG} number into Go struct field Shape.Name of type string"),
        ('{"name": true}', f"{WRONG} bool into Go struct field Shape.Name of type string"),
        (
            '{"Corners": {}}',
            f"{WRONG} object into Go struct field Shape.Corners of type []shapes.Point",
        ),
        (
            '{"Corners": [{"X": 1.5}, 7]}',
            f"{WRONG} number 1.5 into Go struct field Point.Corners.X of type int64",
        ),
        ('{"Notes": {"x": 1}}', f"{WRONG} number into Go struct field Shape.Notes of type string"),
        (
            '{"Origin": {"X": 9223372036854775808}}',
            f"{WRONG} number 9223372036854775808 into Go struct field Point.Origin.X of type int64",
        ),
        ('{"Whole": []}', f"{WRONG} array into Go struct field Shape.Whole of type shapes.Any"),
    ],
)
def test_what_is_of_another_type(text: str, fault: str) -> None:
    assert read(text.encode(), SHAPE) == GoDecodeError(fault)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def faults_are_found_where_they_are(tree: Any, cut: int) -> None:
    """What is JSON is read; what ends too early is not, and the scan says why."""
    text = json.dumps([{"a": tree}]).encode()
    assert read(text, GoSlice("[]any", GoObject("any"))) == [{"a": tree}]
    early = text[: 1 + cut % (len(text) - 1)]
    assert SyntaxScanner(early).fault() == "unexpected EOF"


@given(JSON, st.integers(0, 10_000))
def test_texts_that_end_too_early_are_reported(tree: Any, cut: int) -> None:
    faults_are_found_where_they_are(tree, cut)


def test_control_a_scan_that_loses_its_place_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def string(self: SyntaxScanner) -> None:
        """Wrong: a quotation mark ends a string though a backslash stands before it."""
        while self._next() != ord('"'):
            pass

    monkeypatch.setattr(SyntaxScanner, "_string", string)
    with pytest.raises(AssertionError):
        faults_are_found_where_they_are('"x"', 100)
