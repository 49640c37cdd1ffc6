"""Merging, removal and comparison of typed values, on small schemas."""

from typing import Any

import pytest

from stowplan.apiserver.apply.custom_field_types import custom_field_type
from stowplan.apiserver.apply.typed_comparison import compare
from stowplan.apiserver.apply.typed_merge import merged, under_schema, without_fields
from stowplan.apiserver.apply.typed_value import TypeErrors, check_type, field_set

KEYED = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k"],
    "items": {"type": "object", "properties": {"k": {"type": "string"}, "x": {"type": "integer"}}},
}
TYPE = custom_field_type(
    {
        "properties": {
            "l": KEYED,
            "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "a": {"type": "array", "items": {"type": "string"}},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
            "n": {"type": "integer"},
        }
    }
)


def items(text: str) -> list[dict[str, str]]:
    return [{"k": letter} for letter in text]


@pytest.mark.parametrize(
    ("live", "applied", "wanted"),
    [
        ("abc", "ca", "bca"),
        ("abc", "xb", "axbc"),
        ("abcd", "db", "acdb"),
        ("", "ba", "ba"),
        ("ab", "", "ab"),
        ("abc", "cxa", "bcxa"),
    ],
)
def test_items_of_a_configuration_keep_its_order(live: str, applied: str, wanted: str) -> None:
    made = merged({"l": items(live)}, {"l": items(applied)}, TYPE)
    assert "".join(one["k"] for one in made["l"]) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"n": 1}, {"f:n": {}}),
        ({"a": ["x"]}, {"f:a": {}}),
        ({"s": ["x"]}, {"f:s": {'v:"x"': {}}}),
        ({"m": {"k": "v"}}, {"f:m": {"f:k": {}}}),
        ({"m": {}}, {"f:m": {}}),
        ({"l": [{"k": "a", "x": 1}]}, {"f:l": {'k:{"k":"a"}': {".": {}, "f:k": {}, "f:x": {}}}}),
    ],
)
def test_fields_of_a_configuration(value: Any, wanted: Any) -> None:
    assert field_set(value, TYPE) == wanted


def test_a_comparison_names_what_changed_and_what_went() -> None:
    old = {"n": 1, "m": {"a": "1", "b": "2"}, "l": [{"k": "a", "x": 1}, {"k": "b"}]}
    new = {"n": 2, "m": {"a": "1"}, "l": [{"k": "a", "x": 2}], "s": ["t"]}
    found = compare(old, new, TYPE)
    assert found.changed == {
        "f:n": {},
        "f:l": {'k:{"k":"a"}': {"f:x": {}}},
        "f:s": {".": {}, 'v:"t"': {}},
    }
    assert found.removed == {
        "f:m": {"f:b": {}},
        "f:l": {'k:{"k":"b"}': {".": {}, "f:k": {}}},
    }


def test_removal_leaves_the_container() -> None:
    value = {"m": {"a": "1"}, "l": items("ab")}
    gone = {"f:m": {"f:a": {}}, "f:l": {'k:{"k":"a"}': {}}}
    assert without_fields(value, gone, TYPE) == {"m": {}, "l": items("b")}


def test_paths_below_what_became_atomic_become_its_path() -> None:
    atomic = custom_field_type({"properties": {"l": {**KEYED, "x-kubernetes-list-type": "atomic"}}})
    assert under_schema({"f:l": {'k:{"k":"a"}': {"f:x": {}}}}, atomic) == {"f:l": {}}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"nosuch": 1}, ".nosuch: field not declared in schema"),
        ({"n": "1"}, ".n: expected numeric (int or float), got string"),
        ({"m": []}, ".m: expected map, got &{[]}"),
        ({"l": [1]}, ".l: element 0: associative list with keys may not have non-map elements"),
        ({"l": items("aa")}, '.l: duplicate entries for key [k="a"]'),
        ({"m": {"a": 1}}, ".m.a: expected string, got &value.valueUnstructured{Value:1}"),
    ],
)
def test_errors_of_a_type(value: Any, text: str) -> None:
    with pytest.raises(TypeErrors) as caught:
        check_type(value, TYPE)
    assert str(caught.value) == text
