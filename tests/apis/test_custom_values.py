"""Schemas of custom kinds: what they let through, put in and refuse, and which are schemas."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apis.machinery.errors import Cause
from stowplan.apiserver.crd.custom_resources import CustomSchema
from stowplan.apiserver.crd.jsonpath import JsonPath, column_text
from stowplan.apiserver.crd.schema_validation import schema_causes, unknown_formats
from stowplan.apiserver.crd.value_validation import ValueValidator, list_causes
from tests.soak import examples

Tree = dict[str, Any]


def messages(causes: Any) -> list[str]:
    return [f"{one.field}: {one.message}" for one in causes]


def obj(**properties: Tree) -> Tree:
    return {"type": "object", "properties": properties}


INTEGER: Tree = {"type": "integer"}
TEXT: Tree = {"type": "string"}
EITHER: Tree = {"x-kubernetes-int-or-string": True, "anyOf": [INTEGER, TEXT]}


VALUES: list[tuple[Tree, Any, list[str]]] = [
    (TEXT, 1, ['a: Invalid value: "integer": a in body must be of type string: "integer"']),
    (INTEGER, 1.0, []),
    (
        INTEGER,
        True,
        ['a: Invalid value: "boolean": a in body must be of type integer: "boolean"'],
    ),
    ({"type": "number"}, 1, []),
    (EITHER, "x", []),
    (
        EITHER,
        [],
        [
            'a: Invalid value: "array": a in body must be of type integer,string: "array"',
            '<nil>: Invalid value: "": "a" must validate at least one schema (anyOf)',
            'a: Invalid value: "array": a in body must be of type integer: "array"',
        ],
    ),
    (
        {**INTEGER, "maximum": 2},
        3,
        ["a: Invalid value: 3: a in body should be less than or equal to 2"],
    ),
    (
        {**INTEGER, "minimum": 2, "exclusiveMinimum": True},
        2,
        ["a: Invalid value: 2: a in body should be greater than 2"],
    ),
    (
        {**INTEGER, "multipleOf": 2},
        3,
        ["a: Invalid value: 3: a in body should be a multiple of 2"],
    ),
    ({**TEXT, "maxLength": 1}, "ab", ["a: Too long: may not be more than 1 bytes"]),
    (
        {**TEXT, "minLength": 1},
        "",
        ['a: Invalid value: "": a in body should be at least 1 chars long'],
    ),
    ({**TEXT, "pattern": "^x"}, "y", ["a: Invalid value: \"y\": a in body should match '^x'"]),
    (
        {**TEXT, "enum": ["x", "y"]},
        "z",
        ['a: Unsupported value: "z": supported values: "x", "y"'],
    ),
    (
        {**TEXT, "format": "date-time"},
        "now",
        ['a: Invalid value: "now": a in body must be of type date-time: "now"'],
    ),
    ({**TEXT, "format": "nonsense"}, "now", []),
    (
        {"type": "array", "items": TEXT, "minItems": 2},
        ["x"],
        ["a: Invalid value: 1: a in body should have at least 2 items"],
    ),
    (
        {"type": "array", "items": TEXT, "maxItems": 1},
        ["x", "y"],
        ["a: Too many: 2: must have at most 1 item"],
    ),
    (
        {"type": "array", "items": TEXT},
        [1],
        ['a[0]: Invalid value: "integer": a[0] in body must be of type string: "integer"'],
    ),
    ({**obj(b=TEXT), "required": ["b"]}, {}, ["a.b: Required value"]),
    (
        {"type": "object", "additionalProperties": INTEGER},
        {"x": "y"},
        ['a.x: Invalid value: "string": a.x in body must be of type integer: "string"'],
    ),
    (
        {**INTEGER, "oneOf": [{"minimum": 1}, {"minimum": 2}]},
        3,
        [
            '<nil>: Invalid value: "": "a" must validate one and only one schema (oneOf).'
            " Found 2 valid alternatives"
        ],
    ),
    (
        {**INTEGER, "not": {"minimum": 1}},
        3,
        ['<nil>: Invalid value: "": "a" must not validate the schema (not)'],
    ),
    (TEXT, None, ['a: Invalid value: "null": a in body must be of type string: "null"']),
    ({**TEXT, "nullable": True}, None, []),
]
"""Schemas, values and what is wrong with them."""


@pytest.mark.parametrize(("schema", "value", "causes"), VALUES)
def test_values_are_checked(schema: Tree, value: Any, causes: list[str]) -> None:
    assert messages(ValueValidator().check({"a": value}, obj(a=schema))) == causes


def test_what_did_not_change_is_not_checked_again() -> None:
    schema = obj(a={**INTEGER, "minimum": 5}, b=INTEGER)
    assert messages(ValueValidator().check({"a": 1, "b": 2}, schema, {"a": 1, "b": 1})) == []
    assert len(ValueValidator().check({"a": 2, "b": 2}, schema, {"a": 1, "b": 1})) == 1


def test_lists_that_are_sets_or_maps_have_no_doubles() -> None:
    items = obj(k=TEXT, v=INTEGER)
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": items}
    schema = obj(m={"type": "array", **keyed}, s={"x-kubernetes-list-type": "set"})
    value = {"m": [{"k": "a"}, {"k": "b"}, {"k": "a", "v": 1}], "s": [1, 2, 1, 1]}
    assert messages(list_causes(value, schema)) == [
        'm[2]: Duplicate value: {"k":"a"}',
        "s[2]: Duplicate value: 1",
    ]


SCHEMA = obj(
    spec=obj(
        size={**INTEGER, "default": 3},
        open={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        map={"type": "object", "additionalProperties": obj(a=TEXT)},
        list={"type": "array", "items": obj(a={**TEXT, "default": "d"})},
        maybe={**TEXT, "nullable": True},
    )
)


def decoded(spec: Any) -> tuple[Tree, list[str]]:
    made, texts = CustomSchema(SCHEMA).decode(
        {"kind": "K", "apiVersion": "g/v1", "metadata": {"name": "x"}, "spec": spec}, (), "Warn"
    )
    return made["spec"], texts


def test_unknown_fields_go_and_defaults_come() -> None:
    spec, texts = decoded(
        {"x": 1, "open": {"y": 1}, "map": {"k": {"a": "", "b": 1}}, "list": [{"c": 1}, {}]}
    )
    assert spec == {
        "size": 3,
        "open": {"y": 1},
        "map": {"k": {"a": ""}},
        "list": [{"a": "d"}, {"a": "d"}],
    }
    assert texts == [
        'unknown field "spec.list[0].c"',
        'unknown field "spec.map.k.b"',
        'unknown field "spec.x"',
    ]


def test_nulls_stay_only_where_they_may() -> None:
    assert decoded({"size": None, "maybe": None, "open": None})[0] == {"size": 3, "maybe": None}


@pytest.mark.parametrize(
    ("schema", "cause"),
    [
        ({}, ".type: Required value: must not be empty at the root"),
        (
            obj(a={}),
            ".properties[a].type: Required value: must not be empty for specified object fields",
        ),
        (obj(a={"type": "array"}), ".properties[a].items: Required value: must be specified"),
        (obj(a={"type": "x"}), '.properties[a].type: Unsupported value: "x": supported values: '),
        (
            {**obj(), "anyOf": [{"type": "object"}]},
            ".anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            {**obj(), "anyOf": [{"properties": {"b": {"minimum": 1}}}]},
            ".properties[b]: Required value: because it is defined in s.openAPIV3Schema.anyOf[0]",
        ),
        (obj(a={**INTEGER, "default": "x"}), '.properties[a].default: Invalid value: "string"'),
        (obj(a={**obj(), "default": {"b": 1}}), ".properties[a].default: Invalid value: {"),
        (
            obj(metadata={"type": "object", "properties": {"labels": obj()}}),
            ".properties[metadata]: Forbidden",
        ),
        (obj(a={**TEXT, "uniqueItems": True}), ".properties[a].uniqueItems: Forbidden"),
        (
            obj(a={"type": "array", "items": TEXT, "x-kubernetes-list-type": "map"}),
            ".properties[a].x-kubernetes-list-map-keys: Required value",
        ),
        (
            {**obj(), "additionalProperties": TEXT},
            ".additionalProperties: Forbidden: must not be used at the root",
        ),
    ],
)
def test_what_is_no_schema_is_refused(schema: Tree, cause: str) -> None:
    causes = messages(schema_causes(schema, "s", False))
    assert any(one.startswith(f"s.openAPIV3Schema{cause}") for one in causes), causes


def test_unknown_formats_are_reported() -> None:
    schema = obj(a={**TEXT, "format": "nonsense"}, b={**INTEGER, "format": "int32"})
    spec = {"versions": [{"schema": {"openAPIV3Schema": schema}}]}
    assert unknown_formats(spec) == ["nonsense"]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        (".list[0].t", ["x"]),
        (".list[*].t", ["x", "y"]),
        ('.list[?(@.t=="y")].s', [2]),
        (".nope.x", []),
        (r".a.b\.c", [3]),
        (".a['b.c']", [3]),
        ("..t", ["x", "y"]),
        (".list.[0].t", ["x"]),
        (".list[0:1].t", ["x"]),
        (".list[-1:].t", ["y"]),
        (".list[:].t", ["x", "y"]),
        (".list[0:2:2].t", ["x"]),
        (".list[1:1].t", []),
        (".list[0:3].t", []),
        (".list[-3:].t", []),
        (".a[0:1]", []),
        # Not read: they lead nowhere, and no definition fails for them.
        (".list[-:].t", []),
        (".a[", []),
        (".", []),
    ],
)
def test_paths_lead_to_values(path: str, found: list[Any]) -> None:
    value = {"a": {"b": 1, "b.c": 3}, "list": [{"t": "x", "s": 1}, {"t": "y", "s": 2}]}
    assert JsonPath(path).find(value) == found


def test_columns_show_values_in_one_line() -> None:
    assert [column_text(one) for one in (True, None, 2.0, [1, "a"])] == [
        "true",
        "<nil>",
        "2",
        '[1,"a"]',
    ]


KEYS = st.sampled_from(["spec", "size", "open", "map", "list", "maybe", "a", "x"])
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
)


def settles(schema: CustomSchema, spec: Any) -> bool:
    """True if decoding leaves the source whole and changes its own outcome no more."""
    tree = {"spec": spec}
    before = copy.deepcopy(tree)
    once, _ = schema.decode(tree, (), "Ignore")
    again, texts = schema.decode(copy.deepcopy(once), (), "Warn")
    return tree == before and again == once and not texts


@settings(max_examples=examples(100), deadline=None)
@given(TREES)
def test_decoding_settles_at_once(spec: Any) -> None:
    assert settles(CustomSchema(SCHEMA), spec)


class Rotten(CustomSchema):
    """A wrong schema: its defaults end up in what it was given."""

    def decode(self, tree: Tree, duplicates: Any, mode: str) -> tuple[Tree, list[str]]:
        made, texts = super().decode(tree, duplicates, mode)
        tree["spec"] = made.get("spec")
        return made, texts


def test_a_schema_that_changes_its_source_is_noticed() -> None:
    assert not settles(Rotten(SCHEMA), {"x": 1})


@settings(max_examples=examples(100), deadline=None)
@given(TREES)
def test_every_error_names_a_field_of_the_value(spec: Any) -> None:
    made, _ = CustomSchema(SCHEMA).decode({"spec": spec}, (), "Ignore")
    causes: list[Cause] = ValueValidator().check(made, SCHEMA)
    assert all(one.field.startswith("spec") for one in causes)
